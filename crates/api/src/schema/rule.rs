//! Rules on an object as a whole, in the Common Expression Language (CEL).
//!
//! A CustomResourceDefinition carries the expression; this server evaluates the part of CEL that
//! the tables use: `has(self.field)`, `!`, `||`, `==`, parentheses, and
//! `[a,b].filter(x,x==true).size() == N` for "N of these hold".

use serde_json::{Map, Value};

/// A rule that relates the fields of one object to each other.
#[derive(Clone, Debug)]
pub struct ValidationRule {
    /// The rule in CEL, as a CustomResourceDefinition states it.
    pub expression: &'static str,
    /// The message for an object that violates the rule.
    pub message: &'static str,
    /// What this server evaluates; `None` where code checks the rule with a separate message.
    predicate: Option<Predicate>,
}

#[derive(Clone, Debug)]
enum Predicate {
    Has(&'static str),
    Not(Box<Predicate>),
    Any(Vec<Predicate>),
    Equal(Box<Predicate>, Box<Predicate>),
    Count(Vec<Predicate>, usize),
}

impl ValidationRule {
    /// Parses a rule that this server evaluates; `None` for an expression outside the subset.
    pub(super) fn parse(expression: &'static str, message: &'static str) -> Option<Self> {
        let mut rest = ExpressionText(expression);
        let predicate = rest.parse_any()?;
        rest.0.trim().is_empty().then_some(Self { expression, message, predicate: Some(predicate) })
    }

    /// A rule that only a CustomResourceDefinition states.
    pub(super) fn external(expression: &'static str, message: &'static str) -> Self {
        Self { expression, message, predicate: None }
    }

    /// Whether the object meets the rule; a rule that is checked elsewhere counts as met.
    pub fn holds(&self, object: &Map<String, Value>) -> bool {
        self.predicate.as_ref().is_none_or(|predicate| predicate.holds(object))
    }
}

impl Predicate {
    fn holds(&self, object: &Map<String, Value>) -> bool {
        match self {
            Predicate::Has(field) => object.get(*field).is_some_and(|value| !value.is_null()),
            Predicate::Not(inner) => !inner.holds(object),
            Predicate::Any(parts) => parts.iter().any(|part| part.holds(object)),
            Predicate::Equal(left, right) => left.holds(object) == right.holds(object),
            Predicate::Count(parts, wanted) => {
                parts.iter().filter(|part| part.holds(object)).count() == *wanted
            }
        }
    }
}

struct ExpressionText(&'static str);

impl ExpressionText {
    fn eat(&mut self, token: &str) -> Option<()> {
        self.0 = self.0.trim_start().strip_prefix(token)?;
        Some(())
    }

    /// Eats the longest prefix of characters that `is_part` accepts.
    fn eat_word(&mut self, is_part: fn(char) -> bool) -> &'static str {
        let text = self.0.trim_start();
        let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
        let (word, rest) = text.split_at(end);
        self.0 = rest;
        word
    }

    fn parse_any(&mut self) -> Option<Predicate> {
        let first = self.parse_equality()?;
        let mut parts = vec![first];
        while self.eat("||").is_some() {
            parts.push(self.parse_equality()?);
        }
        Some(if parts.len() == 1 { parts.remove(0) } else { Predicate::Any(parts) })
    }

    fn parse_equality(&mut self) -> Option<Predicate> {
        let left = self.parse_unary()?;
        if self.eat("==").is_none() {
            return Some(left);
        }
        let right = self.parse_unary()?;
        Some(Predicate::Equal(Box::new(left), Box::new(right)))
    }

    fn parse_unary(&mut self) -> Option<Predicate> {
        if self.eat("!").is_some() {
            return Some(Predicate::Not(Box::new(self.parse_unary()?)));
        }
        if self.eat("has(self.").is_some() {
            let field = self.eat_word(|c| c.is_ascii_alphanumeric());
            self.eat(")")?;
            return Some(Predicate::Has(field));
        }
        if self.eat("[").is_some() {
            return self.parse_count();
        }
        self.eat("(")?;
        let inner = self.parse_any()?;
        self.eat(")")?;
        Some(inner)
    }

    fn parse_count(&mut self) -> Option<Predicate> {
        let mut parts = vec![self.parse_any()?];
        while self.eat(",").is_some() {
            parts.push(self.parse_any()?);
        }
        self.eat("].filter(x,x==true).size()")?;
        self.eat("==")?;
        let wanted = self.eat_word(|c| c.is_ascii_digit()).parse().ok()?;
        Some(Predicate::Count(parts, wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn expressions_are_evaluated_as_cel_does() {
        let cases = [
            ("has(self.a)", [false, true, false, true]),
            ("!has(self.a)", [true, false, true, false]),
            ("has(self.a) || has(self.b)", [false, true, true, true]),
            ("has(self.a) == has(self.b)", [true, false, false, true]),
            ("!(has(self.a) || has(self.b))", [true, false, false, false]),
            ("!has(self.a) || has(self.b) == has(self.a)", [true, false, true, true]),
            ("[has(self.a),has(self.b)].filter(x,x==true).size() == 1", [false, true, true, false]),
        ];
        let objects = [json!({"b": null}), json!({"a": 1}), json!({"b": ""}), json!({"a": 1, "b": {}})];
        for (expression, wanted) in cases {
            let rule = ValidationRule::parse(expression, "").unwrap();
            for (object, wanted) in objects.iter().zip(wanted) {
                assert_eq!(rule.holds(object.as_object().unwrap()), wanted, "{expression} {object}");
            }
        }
    }

    #[test]
    fn expressions_outside_the_subset_are_refused() {
        for expression in ["", "has(self.a) &&", "self.a == 1", "has(self.a) has(self.b)", "(has(self.a)"] {
            assert!(ValidationRule::parse(expression, "").is_none(), "{expression}");
        }
        let external = ValidationRule::external("size(self.a) < 3", "");
        assert!(external.holds(&Map::new()));
    }
}
