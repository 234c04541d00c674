//! Kinds that not every server has: which version of them it has, now and later.
