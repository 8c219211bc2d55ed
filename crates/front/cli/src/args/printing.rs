//! Print options of tcpdump, shared by all commands that print packets.

use clap::{ArgAction, Args};
use wb_tcpdump::print::{self, DumpForm, TimeForm};

/// The options of tcpdump that change a printed line.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Printing")]
pub(crate) struct PrintArgs {
    /// Print addresses and ports as numbers; always the case, accepted for compatibility.
    #[arg(short = 'n', action = ArgAction::Count)]
    numeric: u8,
    /// Accepted without effect: names are never printed.
    #[arg(short = 'N', hide = true)]
    bare_names: bool,
    #[arg(short = 'f', hide = true)]
    foreign_numeric: bool,
    /// Also print the link header.
    #[arg(short = 'e')]
    link_header: bool,
    /// Time format: none (-t), seconds since 1970 (-tt), since the previous packet (-ttt), with the date (-tttt),
    /// since the first packet (-ttttt).
    #[arg(short = 't', action = ArgAction::Count)]
    time: u8,
    /// Print the bytes in hexadecimal; -xx includes the link header.
    #[arg(short = 'x', action = ArgAction::Count)]
    hex: u8,
    /// Print the bytes in hexadecimal and as text; -XX includes the link header.
    #[arg(short = 'X', action = ArgAction::Count)]
    hex_and_text: u8,
    /// Print the bytes as text; -AA includes the link header.
    #[arg(short = 'A', action = ArgAction::Count)]
    text: u8,
    /// Print the packet number first.
    #[arg(short = '#', long)]
    number: bool,
    /// Print TCP sequence numbers as sent, not relative to the first.
    #[arg(short = 'S', long)]
    absolute_tcp_sequence_numbers: bool,
    /// Do not verify checksums, which -v would do.
    #[arg(short = 'K', long)]
    dont_verify_checksums: bool,
    /// Flush the output after each line.
    #[arg(short = 'l')]
    pub(crate) line_buffered: bool,
}

impl PrintArgs {
    /// Returns the options of the printer; `verbose` is the number of -v.
    ///
    /// # Errors
    /// If an option is repeated more often than it has meanings.
    pub(crate) fn options(
        &self,
        verbose: u8,
        quiet: bool,
        nano: bool,
    ) -> anyhow::Result<print::PrintOptions> {
        let link = |times: u8| times > 1;
        Ok(print::PrintOptions {
            time: match self.time {
                0 => TimeForm::TimeOfDay,
                1 => TimeForm::None,
                2 => TimeForm::Unix,
                3 => TimeForm::SincePrevious,
                4 => TimeForm::DateTime,
                5 => TimeForm::SinceFirst,
                _ => anyhow::bail!("-t: expected at most five times (-ttttt)"),
            },
            precision: if nano {
                print::Precision::Nano
            } else {
                print::Precision::Micro
            },
            link_header: self.link_header,
            quiet,
            verbose,
            dump: match (self.hex_and_text, self.hex, self.text) {
                (0, 0, 0) => DumpForm::None,
                (0, 0, times) => DumpForm::Text { link: link(times) },
                (0, times, _) => DumpForm::Hex { link: link(times) },
                (times, _, _) => DumpForm::HexAndText { link: link(times) },
            },
            number: self.number,
            absolute_sequence: self.absolute_tcp_sequence_numbers,
            unverified: self.dont_verify_checksums,
        })
    }

    /// Returns the same options as arguments for tcpdump.
    pub(crate) fn words(&self, verbose: u8, quiet: bool, nano: bool) -> Vec<String> {
        let mut letters = String::new();
        for (letter, times) in [
            ('e', u8::from(self.link_header)),
            ('q', u8::from(quiet)),
            ('v', verbose),
            ('t', self.time),
            ('x', self.hex),
            ('X', self.hex_and_text),
            ('A', self.text),
            ('#', u8::from(self.number)),
            ('S', u8::from(self.absolute_tcp_sequence_numbers)),
            ('K', u8::from(self.dont_verify_checksums)),
            ('l', u8::from(self.line_buffered)),
        ] {
            letters.extend(std::iter::repeat_n(letter, usize::from(times)));
        }
        let mut words = Vec::new();
        if !letters.is_empty() {
            words.push(format!("-{letters}"));
        }
        if nano {
            words.push("--nano".to_owned());
        }
        words
    }

    /// Returns the options that tshark also has, as arguments for tshark.
    pub(crate) fn words_for_tshark(&self, verbose: u8) -> Vec<String> {
        let bytes = self.hex > 0 || self.hex_and_text > 0;
        let words = [
            ("-V", verbose > 0),
            ("-x", bytes),
            ("-l", self.line_buffered),
        ];
        let given = words.into_iter().filter(|(_, given)| *given);
        given.map(|(word, _)| word.to_owned()).collect()
    }
}
