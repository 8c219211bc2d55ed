//! What wrk prints.
