//! wrk's command line.
