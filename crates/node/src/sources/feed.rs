//! Watches that go on through errors.
