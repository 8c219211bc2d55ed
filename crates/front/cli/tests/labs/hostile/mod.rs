//! Deliberate attempts to break the tester: a file for each question.

mod where_may_it_send;
mod wrong_machine;
