//! Deliberate attempts to break the tester: a file for each question.

mod a_bad_device;
mod a_benchmark;
mod before_it_starts;
mod every_end;
mod late_answers;
mod left_behind;
mod nobody_listens;
mod nothing_at_all;
mod stop_the_tester;
mod strangers;
mod whatever_comes;
mod where_may_it_send;
mod wrong_machine;
