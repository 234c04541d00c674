use super::*;

const TABLE: &str = "package a.b
import x c.d
type One | The first.
  1 name string always required default=\"\" | A name.
  3 list []x.Two nonempty list=key:k patch=merge:k
  2 map map[[]string] given
package c.d
type Two atomic
  1 k string nonempty enum=A,B
";

#[test]
fn a_table_becomes_types() {
    let schema = Schema::parse(&[("t", TABLE)]).unwrap();
    let one = schema.get_type(schema.lookup("a.b.One").unwrap());
    assert_eq!(one.description, "The first.");
    assert_eq!(one.field("name").unwrap().description, "A name.");
    assert_eq!(one.field_by_tag(3).unwrap().merge, MergeStrategy::ByKey(vec!["k"]));
    assert_eq!(one.field("list").unwrap().patch, PatchStrategy::Merge(Some("k")));
    let two = schema.lookup("c.d.Two").unwrap();
    assert!(schema.get_type(two).atomic);
    assert_eq!(one.field("list").unwrap().shape, ValueShape::List(Box::new(ValueShape::Object(two))));
}

#[test]
fn inlined_fields_are_flattened_and_keep_their_message() {
    let text = "package p
type Outer
  1 base Base inline
  2 key string always
type Base
  1 name string nonempty
  2 deep Deep inline
type Deep
  1 x map[[]string] given wrapped
";
    let schema = Schema::parse(&[("t", text)]).unwrap();
    let outer = schema.get_type(schema.lookup("p.Outer").unwrap());
    let names: Vec<_> = outer.fields.iter().map(|f| (f.name, f.tag)).collect();
    assert_eq!(names, [("key", 2), ("name", 0), ("x", 0)]);
    assert_eq!(outer.inlined_by_tag(1), schema.lookup("p.Base"));
    assert!(outer.field("x").unwrap().wrapped);
    assert!(outer.field_by_tag(0).is_none());
    let circle = "package p\ntype A\n  1 a A inline\n  2 f bool given";
    assert!(Schema::parse(&[("t", circle)]).is_err());
}

#[test]
fn a_broken_table_names_the_line() {
    for (text, words) in [
        ("package p\ntype T\n  1 a Nope given", "line 3: type p.Nope is unknown"),
        ("package p\ntype T\n  1 a string often", "line 3: presence"),
        ("package p\n  1 a string given", "line 2: a field before"),
        ("package p\ntype T\n  x a string given", "line 3: tag"),
        ("package p\ntype T odd", "line 2: type attribute"),
        ("package p\ntype T\n  1 a string given max=x", "line 3: attribute"),
        ("package p\ntype T\n  rule self.a | m", "line 3: rule self.a"),
        ("package p\ntype T\n  column string A", "line 3: a column is"),
        ("package p\ntype T\ntype T", "line 3: type p.T is defined twice"),
    ] {
        let error = Schema::parse(&[("t", text)]).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn the_built_in_tables_agree_with_themselves() {
    let schema = parse(TABLES).unwrap();
    for (_, t) in schema.types() {
        let mut tags: Vec<u32> = t.fields.iter().map(|f| f.tag).filter(|tag| *tag != 0).collect();
        tags.extend(t.inlined.iter().map(|i| i.tag));
        let all = tags.len();
        tags.sort_unstable();
        tags.dedup();
        assert_eq!(tags.len(), all, "a tag of {} stands twice", t.name);
        for field in &t.fields {
            let at = format!("{}.{}", t.name, field.name);
            let mut keys = match &field.merge {
                MergeStrategy::ByKey(keys) => keys.clone(),
                _ => Vec::new(),
            };
            if let PatchStrategy::Merge(Some(key)) | PatchStrategy::MergeRetainKeys(key) = field.patch {
                keys.push(key);
            }
            if let ValueShape::List(of) = &field.shape
                && let ValueShape::Object(id) = **of
            {
                let element = schema.get_type(id);
                keys.retain(|key| element.field(key).is_none());
            }
            assert!(keys.is_empty(), "{at} is keyed by {keys:?}");
            let list_in_map =
                matches!(&field.shape, ValueShape::Map(of) if matches!(**of, ValueShape::List(_)));
            assert_eq!(field.wrapped, list_in_map, "{at}");
            assert!(!field.nullable || field.presence == FieldPresence::Always, "{at}");
        }
    }
}

#[test]
fn limits_rules_and_columns_are_read() {
    let text = "package p
type T atomic minProperties=1 | A type.
  2 names []string given min=1 max=3 item.max=9 | Names.
  1 digest string given format=sha256
  rule has(self.names) || has(self.digest) | one must be set
  crd-rule size(self.names) < 2 | too many
  column integer \"Two Words\" .status.x[?(@.type == \"A\")] | A column.
";
    let schema = Schema::parse(&[("t", text)]).unwrap();
    let ty = schema.get_type(schema.lookup("p.T").unwrap());
    assert!(ty.atomic && ty.min_properties == 1);
    let names = ty.field("names").unwrap();
    assert_eq!(names.limits, ValueLimits { min: Some(1), max: Some(3), format: None });
    assert_eq!(names.item_limits, ValueLimits { min: None, max: Some(9), format: None });
    assert_eq!(ty.field("digest").unwrap().limits.format, Some(TextFormat::Sha256));
    assert_eq!(ty.fields_by_tag().map(|f| f.name).collect::<Vec<_>>(), ["digest", "names"]);
    let rules = ty.rules.iter().map(|rule| (rule.expression, rule.message));
    let wanted =
        [("has(self.names) || has(self.digest)", "one must be set"), ("size(self.names) < 2", "too many")];
    assert_eq!(rules.collect::<Vec<_>>(), wanted);
    let holds = ty.rules.iter().map(|rule| rule.holds(&serde_json::Map::new()));
    assert_eq!(holds.collect::<Vec<_>>(), [false, true], "a crd-rule is checked elsewhere");
    let column = PrinterColumn {
        name: "Two Words",
        kind: "integer",
        json_path: ".status.x[?(@.type == \"A\")]",
        description: "A column.",
    };
    assert_eq!(ty.columns, [column]);
}
