use prost::encoding::{encode_key, encode_varint};
use serde_json::json;

use super::*;

const TABLE: &str = "package p
type Thing
  1 name string always
  2 count int32 given
  3 big int64 given
  4 on bool given
  5 ratio float given
  6 data bytes given
  7 at time given
  8 exact microtime given
  9 size quantity given
  10 port intorstring given
  11 extra raw given
  12 owned fieldsv1 given
  13 labels map[string] given
  14 lists map[[]string] given wrapped
  15 names []string given
  16 numbers []int32 given
  17 ratios []float given
  18 child Thing given
  19 children []Thing given
  20 base Base inline
  21 verbs []string given wrapped
  22 things map[Thing] given
  23 limits map[quantity] given
type Base
  1 inner string given
  2 deep Deep inline
type Deep
  1 leaf string given
";

fn schema() -> Schema {
    Schema::parse(&[("t", TABLE)]).unwrap()
}

#[derive(Clone, Default)]
struct WireBuilder(Vec<u8>);

impl WireBuilder {
    fn varint(mut self, tag: u32, value: u64) -> Self {
        encode_key(tag, WireType::Varint, &mut self.0);
        encode_varint(value, &mut self.0);
        self
    }

    fn bytes(mut self, tag: u32, value: impl AsRef<[u8]>) -> Self {
        encode_key(tag, WireType::LengthDelimited, &mut self.0);
        encode_varint(value.as_ref().len() as u64, &mut self.0);
        self.0.extend_from_slice(value.as_ref());
        self
    }

    fn message(self, tag: u32, value: WireBuilder) -> Self {
        self.bytes(tag, value.0)
    }

    fn double(mut self, tag: u32, value: f64) -> Self {
        encode_key(tag, WireType::SixtyFourBit, &mut self.0);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }
}

fn wire() -> WireBuilder {
    WireBuilder::default()
}

fn envelope(raw: WireBuilder) -> Vec<u8> {
    let meta = wire().bytes(1, "p/v1").bytes(2, "Thing");
    let unknown = wire().message(1, meta).message(2, raw).bytes(3, "").bytes(4, "");
    [&MAGIC[..], &unknown.0].concat()
}

fn decode(raw: WireBuilder) -> Result<Value, DecodeError> {
    let schema = schema();
    protobuf(&schema, &envelope(raw), |version, kind| {
        if version == "p/v1" { schema.lookup(&format!("p.{kind}")) } else { None }
    })
}

fn read(raw: WireBuilder) -> Value {
    let mut value = decode(raw).unwrap();
    let object = value.as_object_mut().unwrap();
    assert_eq!(object.remove("apiVersion"), Some(json!("p/v1")));
    assert_eq!(object.remove("kind"), Some(json!("Thing")));
    value
}

fn encode_time(seconds: i64, nanos: i32) -> WireBuilder {
    wire().varint(1, seconds as u64).varint(2, nanos as u64)
}

#[test]
fn every_shape_is_read() {
    let entry = |key: &str, value: &str| wire().bytes(1, key).bytes(2, value);
    for (raw, value) in [
        (wire(), json!({})),
        (wire().bytes(1, ""), json!({"name": ""})),
        (wire().varint(2, -5_i64 as u64), json!({"count": -5})),
        (wire().varint(2, u64::from(u32::MAX)), json!({"count": -1})),
        (wire().varint(3, i64::MIN as u64), json!({"big": i64::MIN})),
        (wire().varint(4, 1).varint(4, 0), json!({"on": false})),
        (wire().double(5, 2.5), json!({"ratio": 2.5})),
        (wire().bytes(6, b"\xff\x00"), json!({"data": "/wA="})),
        (wire().message(7, wire()), json!({"at": null})),
        (wire().message(7, encode_time(ZERO, 0)), json!({"at": null})),
        (wire().message(7, encode_time(0, 0)), json!({"at": "1970-01-01T00:00:00Z"})),
        (wire().message(7, encode_time(1_700_000_000, 9)), json!({"at": "2023-11-14T22:13:20Z"})),
        (wire().message(8, wire()), json!({"exact": null})),
        (
            wire().message(8, encode_time(1_700_000_000, 123_456_789)),
            json!({"exact": "2023-11-14T22:13:20.123456Z"}),
        ),
        (wire().message(8, encode_time(-1, 5000)), json!({"exact": "1969-12-31T23:59:59.000005Z"})),
        (wire().message(9, wire().bytes(1, "500m")), json!({"size": "500m"})),
        (wire().message(9, wire()), json!({"size": "0"})),
        (wire().message(10, wire().varint(1, 0).varint(2, 80)), json!({"port": 80})),
        (wire().message(10, wire().varint(1, 1).bytes(3, "web")), json!({"port": "web"})),
        (wire().message(11, wire().bytes(1, "[1,{}]")), json!({"extra": [1, {}]})),
        (wire().message(11, wire()), json!({"extra": null})),
        (wire().message(12, wire().bytes(1, "{\"f:a\":{}}")), json!({"owned": {"f:a": {}}})),
        (
            wire().message(13, entry("a", "1")).message(13, entry("b", "2")).message(13, wire()),
            json!({"labels": {"a": "1", "b": "2", "": ""}}),
        ),
        (
            wire().message(14, wire().bytes(1, "k").message(2, wire().bytes(1, "x").bytes(1, "y"))),
            json!({"lists": {"k": ["x", "y"]}}),
        ),
        (wire().message(14, wire().bytes(1, "k")), json!({"lists": {"k": []}})),
        (wire().bytes(15, "a").bytes(15, ""), json!({"names": ["a", ""]})),
        (wire().varint(16, 1).varint(16, -2_i64 as u64), json!({"numbers": [1, -2]})),
        (wire().varint(16, 1).bytes(16, [2, 0x80, 1]), json!({"numbers": [1, 2, 128]})),
        (wire().bytes(17, 0.5_f64.to_le_bytes()).double(17, 1.5), json!({"ratios": [0.5, 1.5]})),
        (
            wire().message(18, wire().bytes(1, "x")).message(18, wire().varint(2, 1)),
            json!({"child": {"name": "x", "count": 1}}),
        ),
        (
            wire().message(19, wire().bytes(1, "x")).message(19, wire()),
            json!({"children": [{"name": "x"}, {}]}),
        ),
        (
            wire().message(20, wire().bytes(1, "i").message(2, wire().bytes(1, "l"))),
            json!({"inner": "i", "leaf": "l"}),
        ),
        (wire().message(21, wire().bytes(1, "get").bytes(1, "list")), json!({"verbs": ["get", "list"]})),
        (
            wire().message(22, wire().bytes(1, "t").message(2, wire().varint(2, 3))),
            json!({"things": {"t": {"count": 3}}}),
        ),
        (
            wire().message(23, wire().bytes(1, "cpu").message(2, wire().bytes(1, "1"))),
            json!({"limits": {"cpu": "1"}}),
        ),
        (wire().varint(99, 1).bytes(98, "x").double(97, 1.0).bytes(1, "n"), json!({"name": "n"})),
    ] {
        assert_eq!(read(raw), value);
    }
}

const ZERO: i64 = -62_135_596_800;

#[test]
fn rejects_mismatched_fields_with_their_path() {
    let thing = |raw: WireBuilder| wire().message(19, wire()).message(19, wire().message(18, raw));
    for (raw, words) in [
        (wire().varint(1, 1), "proto: name: invalid wire type"),
        (thing(wire().bytes(1, b"\xff")), "proto: children.[1].child.name: the text is not UTF-8"),
        (thing(wire().message(11, wire().bytes(1, "{"))), "extra: unexpected end of JSON input"),
        (wire().message(7, encode_time(i64::MAX, 0)), "proto: at: the year is not"),
        (wire().message(7, encode_time(i64::MIN, 0)), "proto: at: the year is not"),
        (wire().message(8, encode_time(ZERO - 40_000_000, 0)), "proto: exact: the year is not"),
        (wire().message(10, wire().varint(1, 2)), "proto: port: neither a number nor a string"),
        (wire().double(5, f64::NAN), "proto: ratio: a number is not finite"),
        (WireBuilder(vec![0x0a, 0x7f, b'x']), "proto: name: unexpected EOF"),
        (WireBuilder(vec![0x0a, 0xff]), "proto: name: invalid varint"),
        (WireBuilder(vec![0x0f]), "proto: invalid wire type"),
        (WireBuilder(vec![0x00, 0x01]), "proto: invalid tag"),
        (wire().bytes(17, [0; 7]), "proto: ratios: "),
    ] {
        let error = decode(raw).unwrap_err().to_string();
        assert!(error.contains(words), "{error} / {words}");
    }
    let huge = WireBuilder([&[0x0a][..], &[0xff; 9], &[0x01]].concat());
    assert_eq!(decode(huge).unwrap_err().to_string(), "proto: name: unexpected EOF");
}

#[test]
fn the_envelope_is_checked() {
    let schema = schema();
    let nowhere = |bytes: &[u8]| protobuf(&schema, bytes, |_, _| None).unwrap_err().to_string();
    assert_eq!(nowhere(b""), "empty data");
    assert_eq!(nowhere(b"k8s\0"), "empty body");
    assert_eq!(
        nowhere(b"{}"),
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
    );
    assert_eq!(nowhere(&envelope(wire())), "no kind \"Thing\" is registered for version \"p/v1\"");
    let bare = protobuf(&schema, b"k8s\0\x12\x00", |version, kind| {
        assert_eq!((version, kind), ("", ""));
        schema.lookup("p.Thing")
    });
    assert_eq!(bare.unwrap(), json!({}));
}

#[test]
fn nesting_is_bounded() {
    for tag in [18, 19, 22] {
        let nested = |levels: usize| {
            (0..levels).fold(wire(), |inner, _| match tag {
                22 => wire().message(22, wire().bytes(1, "k").message(2, inner)),
                _ => wire().message(tag, inner),
            })
        };
        let per_level = if tag == 18 { 1 } else { 2 };
        let most = (MAX_DEPTH - 1) / per_level;
        assert!(super::super::depth(&read(nested(most))) <= MAX_DEPTH);
        for levels in [most + 1, 20_000] {
            let error = decode(nested(levels)).unwrap_err().to_string();
            assert!(error.ends_with("exceeded max depth"), "{tag}: {error}");
        }
    }
    let raw = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
    let inside = |levels| wire().message(18, wire().message(11, wire().bytes(1, raw(levels))));
    assert_eq!(super::super::depth(&read(inside(MAX_DEPTH - 2))), MAX_DEPTH);
    assert!(decode(inside(MAX_DEPTH - 1)).is_err());
    let groups = WireBuilder([[0xc3, 0x3e].repeat(5_000), [0xc4, 0x3e].repeat(5_000)].concat());
    assert!(decode(groups).is_err());
}
