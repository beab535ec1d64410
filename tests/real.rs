//! The real-model suite.

fn main() {}
