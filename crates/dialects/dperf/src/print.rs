//! A configuration as text, in one form only.

use std::fmt;

use crate::config::Config;
use crate::keywords::KEYWORDS;

/// One line for each setting that the file had, in the order of the table of keywords. Reading the
/// text gives an equal configuration. Comments are not kept.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for keyword in KEYWORDS {
            for arguments in keyword.config_lines(self) {
                match arguments.as_str() {
                    "" => writeln!(f, "{}", keyword.name)?,
                    arguments => writeln!(f, "{} {arguments}", keyword.name)?,
                }
            }
        }
        Ok(())
    }
}
