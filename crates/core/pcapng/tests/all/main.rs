//! Files through the public API of the crate.

mod external_readers;
mod laws;
mod mutations;
mod odd_files;
mod reference;
mod vectors;
