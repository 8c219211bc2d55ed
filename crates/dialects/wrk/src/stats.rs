//! wrk's arithmetic over counted values.
