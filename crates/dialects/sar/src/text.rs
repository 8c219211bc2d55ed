//! sar's tables.

use std::fmt::Write;

use wb_counters::{Folded, LinkCounters, LinkRates, softnet::SoftnetRise};

use crate::{Request, Table};

/// First line of the output.
#[derive(Clone, Debug)]
pub struct Banner {
    /// System and release, for example `Linux 6.1.0`.
    pub system: String,
    /// Host name.
    pub host: String,
    /// Date in the format of the locale or of `S_TIME_FORMAT`.
    pub day: String,
    /// Architecture, for example `x86_64`.
    pub machine: String,
    /// Number of CPUs.
    pub cpus: usize,
}

impl Banner {
    /// The line, followed by an empty line.
    #[must_use]
    pub fn text(&self) -> String {
        let (system, host, day) = (&self.system, &self.host, &self.day);
        format!(
            "{system} ({host}) \t{day} \t_{}_\t({} CPU)\n\n",
            self.machine, self.cpus
        )
    }
}

/// Times of a report as text: the previous reading for headers, the present one for lines.
#[derive(Clone, Debug)]
pub struct Moment {
    /// Text in front of headers.
    pub before: String,
    /// Text in front of lines.
    pub now: String,
}

impl Moment {
    /// Label of the averages.
    #[must_use]
    pub fn average() -> Self {
        Self {
            before: "Average:".to_owned(),
            now: "Average:".to_owned(),
        }
    }
}

/// Counters of an interface over one interval. `counted` is `None` if the interface was reset: sar would show the
/// counts since the reset as if they started at zero.
#[derive(Clone, Debug)]
pub struct LinkRow {
    /// Name of the interface.
    pub name: String,
    /// Increments and rates.
    pub counted: Option<(LinkCounters, LinkRates)>,
    /// Time between the readings, s.
    pub seconds: f64,
}

/// Received packets of a CPU over one interval.
#[derive(Clone, Copy, Debug)]
pub struct CpuRow {
    /// CPU number; `None` for the sum of all CPUs.
    pub cpu: Option<u32>,
    /// Increments.
    pub counted: SoftnetRise,
    /// Time between the readings, s.
    pub seconds: f64,
}

/// Formatter of the tables.
#[derive(Clone, Debug)]
pub struct Text {
    tables: Vec<Table>,
    human: bool,
    pretty: bool,
    decimals: usize,
    omit_zero: bool,
}

const DEV: [&str; 8] = [
    "rxpck/s", "txpck/s", "rxkB/s", "txkB/s", "rxcmp/s", "txcmp/s", "rxmcst/s", "%ifutil",
];
const EDEV: [&str; 9] = [
    "rxerr/s", "txerr/s", "coll/s", "rxdrop/s", "txdrop/s", "txcarr/s", "rxfram/s", "rxfifo/s",
    "txfifo/s",
];
const SOFT: [&str; 6] = [
    "total/s",
    "dropd/s",
    "squeezd/s",
    "rx_rps/s",
    "flw_lim/s",
    "blg_len",
];

/// A value with its unit.
enum Cell {
    Rate(f64),
    /// Bytes per second, shown in kB or with the letter of the unit.
    Bytes(f64),
    Percent(f64),
    Count(u64),
    /// Not available.
    Unknown,
}

impl Text {
    /// Makes the formatter of a request.
    #[must_use]
    pub fn new(request: &Request) -> Self {
        Self {
            tables: request.tables.iter().copied().collect(),
            human: request.human,
            pretty: request.pretty,
            decimals: request.decimals,
            omit_zero: request.omit_zero,
        }
    }

    /// Returns true if each interval is a block with separate headers, which is the case if a table has several
    /// lines. `interfaces` and `cpus` count all lines, shown or not.
    #[must_use]
    pub fn is_block(&self, interfaces: usize, cpus: usize) -> bool {
        let lines = |table: &Table| {
            if *table == Table::Soft {
                cpus
            } else {
                interfaces
            }
        };
        self.tables.iter().map(lines).sum::<usize>() > 1
    }

    /// Lines of an interval. `headers` is set for a [block](Self::is_block) and at regular intervals otherwise; `gap`
    /// adds
    /// an empty line after each table.
    #[must_use]
    pub fn interval(
        &self,
        moment: &Moment,
        links: &[LinkRow],
        cpus: &[CpuRow],
        headers: bool,
        gap: bool,
    ) -> String {
        let mut text = String::new();
        for table in &self.tables {
            if headers {
                self.header(&mut text, *table, &moment.before);
            }
            match table {
                Table::Soft => self.soft(&mut text, &moment.now, cpus),
                table => self.links(&mut text, *table, &moment.now, links),
            }
            if gap {
                text.push('\n');
            }
        }
        text
    }

    fn header(&self, text: &mut String, table: Table, stamp: &str) {
        let (name, columns): (_, &[&str]) = match table {
            Table::Dev => ("IFACE", &DEV),
            Table::Edev => ("IFACE", &EDEV),
            Table::Soft => ("CPU", &SOFT),
        };
        let _ = write!(text, "{stamp:<11}");
        self.front(text, table, name);
        for column in columns {
            let _ = write!(text, " {column:>9}");
        }
        self.back(text, table, name);
    }

    /// Writes a name before the columns.
    fn front(&self, text: &mut String, table: Table, name: &str) {
        let _ = match table {
            Table::Soft => write!(text, " {name:>7}"),
            _ if self.pretty => Ok(()),
            _ => write!(text, " {name:>9}"),
        };
    }

    /// Writes a name after the columns, and the line end.
    fn back(&self, text: &mut String, table: Table, name: &str) {
        if self.pretty && table != Table::Soft {
            let _ = write!(text, " {name}");
        }
        text.push('\n');
    }

    fn row(&self, text: &mut String, table: Table, stamp: &str, name: &str, cells: &[Cell]) {
        let _ = write!(text, "{stamp:<11}");
        self.front(text, table, name);
        for cell in cells {
            text.push(' ');
            self.cell(text, cell);
        }
        self.back(text, table, name);
    }

    fn cell(&self, text: &mut String, cell: &Cell) {
        let digits = self.decimals;
        let _ = match cell {
            Cell::Rate(value) => write!(text, "{value:9.digits$}"),
            Cell::Bytes(value) if self.human => {
                let mut value = *value;
                let mut units = ["B", "k", "M", "G", "T"].into_iter();
                let mut unit = units.next().unwrap_or_default();
                while value >= 1024.0
                    && let Some(next) = units.next()
                {
                    (value, unit) = (value / 1024.0, next);
                }
                write!(text, "{value:8.*}{unit}", digits.min(1))
            }
            Cell::Bytes(value) => write!(text, "{:9.digits$}", value / 1024.0),
            Cell::Percent(value) if self.human => write!(text, "{value:8.*}%", digits.min(1)),
            Cell::Percent(value) => write!(text, "{value:9.digits$}"),
            Cell::Count(value) => write!(text, "{value:>9}"),
            Cell::Unknown => write!(text, "{:>9}", "n/a"),
        };
    }

    fn links(&self, text: &mut String, table: Table, stamp: &str, links: &[LinkRow]) {
        for link in links {
            let Some((counted, rates)) = &link.counted else {
                let columns = if table == Table::Dev {
                    DEV.len()
                } else {
                    EDEV.len()
                };
                let unknown: Vec<Cell> = (0..columns).map(|_| Cell::Unknown).collect();
                self.row(text, table, stamp, &link.name, &unknown);
                continue;
            };
            // sar omits an interface only if all its counters are zero, in any table.
            if self.omit_zero && counted.named().all(|(_, n)| n == 0) {
                continue;
            }
            let folded = counted.folded();
            let cells = match table {
                Table::Dev => dev(&folded, rates, link.seconds),
                _ => edev(&folded, link.seconds),
            };
            self.row(text, table, stamp, &link.name, &cells);
        }
    }

    #[allow(clippy::cast_precision_loss)]
    fn soft(&self, text: &mut String, stamp: &str, cpus: &[CpuRow]) {
        for row in cpus {
            let counted = row.counted;
            let counts = [
                counted.processed,
                counted.dropped,
                counted.squeezed,
                counted.received_rps,
                counted.flow_limit,
            ];
            if self.omit_zero && counts.iter().all(|n| *n == 0) && counted.backlog == 0 {
                continue;
            }
            let mut cells: Vec<Cell> = counts.iter().map(|n| rate(*n, row.seconds)).collect();
            cells.push(Cell::Count(counted.backlog));
            let name = row.cpu.map_or("all".to_owned(), |cpu| cpu.to_string());
            self.row(text, Table::Soft, stamp, &name, &cells);
        }
    }
}

#[allow(clippy::cast_precision_loss)]
fn rate(count: u64, seconds: f64) -> Cell {
    Cell::Rate(if seconds > 0.0 {
        count as f64 / seconds
    } else {
        0.0
    })
}

fn dev(folded: &Folded, rates: &LinkRates, seconds: f64) -> Vec<Cell> {
    vec![
        Cell::Rate(rates.rx_pps),
        Cell::Rate(rates.tx_pps),
        Cell::Bytes(rates.rx_bytes_per_s),
        Cell::Bytes(rates.tx_bytes_per_s),
        rate(folded.rx_compressed, seconds),
        rate(folded.tx_compressed, seconds),
        rate(folded.multicast, seconds),
        Cell::Percent(rates.ifutil_percent.unwrap_or(0.0)),
    ]
}

fn edev(folded: &Folded, seconds: f64) -> Vec<Cell> {
    let counts = [
        folded.rx_errors,
        folded.tx_errors,
        folded.collisions,
        folded.rx_drop,
        folded.tx_drop,
        folded.tx_carrier,
        folded.rx_frame,
        folded.rx_fifo,
        folded.tx_fifo,
    ];
    counts.map(|count| rate(count, seconds)).into()
}

#[cfg(test)]
mod tests {
    use wb_counters::{LinkCounters, LinkProperties};

    use super::*;
    use crate::{Asked, parse};

    fn text(line: &str) -> Text {
        let words: Vec<String> = line.split(' ').map(ToOwned::to_owned).collect();
        match parse(&words) {
            Ok(Asked::Tables(request)) => Text::new(&request),
            other => panic!("{other:?}"),
        }
    }

    fn lo() -> LinkRow {
        let counted = LinkCounters {
            rx_packets: 10_322,
            rx_bytes: 8_288_600,
            rx_dropped: 2,
            rx_missed_errors: 1,
            ..LinkCounters::default()
        };
        LinkRow {
            name: "lo".to_owned(),
            counted: Some((
                counted,
                LinkRates::new(&counted, 1.0, &LinkProperties::default()),
            )),
            seconds: 1.0,
        }
    }

    fn moment() -> Moment {
        Moment {
            before: "18:57:25".to_owned(),
            now: "18:57:26".to_owned(),
        }
    }

    #[test]
    fn a_block_as_sysstat_12_6_1_prints_it() {
        let gone = LinkRow {
            name: "a-long-name".to_owned(),
            counted: None,
            seconds: 1.0,
        };
        let soft = CpuRow {
            cpu: None,
            counted: SoftnetRise {
                processed: 10_324,
                backlog: 3,
                ..SoftnetRise::default()
            },
            seconds: 1.0,
        };
        let shown =
            text("-n DEV,EDEV,SOFT 1").interval(&moment(), &[lo(), gone], &[soft], true, true);
        let expected = "\
18:57:25        IFACE   rxpck/s   txpck/s    rxkB/s    txkB/s   rxcmp/s   txcmp/s  rxmcst/s   %ifutil
18:57:26           lo  10322.00      0.00   8094.34      0.00      0.00      0.00      0.00      0.00
18:57:26    a-long-name       n/a       n/a       n/a       n/a       n/a       n/a       n/a       n/a

18:57:25        IFACE   rxerr/s   txerr/s    coll/s  rxdrop/s  txdrop/s  txcarr/s  rxfram/s  rxfifo/s  txfifo/s
18:57:26           lo      0.00      0.00      0.00      3.00      0.00      0.00      0.00      0.00      0.00
18:57:26    a-long-name       n/a       n/a       n/a       n/a       n/a       n/a       n/a       n/a       n/a

18:57:25        CPU   total/s   dropd/s squeezd/s  rx_rps/s flw_lim/s   blg_len
18:57:26        all  10324.00      0.00      0.00      0.00      0.00         3

";
        assert_eq!(shown, expected);
    }

    #[test]
    fn for_people() {
        let shown = text("-h -n DEV 1").interval(&moment(), &[lo()], &[], true, false);
        let expected = "\
18:57:25      rxpck/s   txpck/s    rxkB/s    txkB/s   rxcmp/s   txcmp/s  rxmcst/s   %ifutil IFACE
18:57:26     10322.00      0.00      7.9M      0.0B      0.00      0.00      0.00      0.0% lo
";
        assert_eq!(shown, expected);
        let mut small = lo();
        if let Some((_, rates)) = &mut small.counted {
            rates.rx_bytes_per_s = 1_010.0;
        }
        let shown = text("-h -n DEV 1").interval(&moment(), &[small], &[], false, false);
        assert!(shown.contains(" 1010.0B "), "{shown}");
        let shown = text("--human --dec=0 -n DEV 1").interval(
            &Moment::average(),
            &[lo()],
            &[],
            false,
            false,
        );
        assert_eq!(
            shown,
            "Average:           lo     10322         0        8M        0B         0         0         0        0%\n"
        );
    }

    #[test]
    fn one_line_has_no_block() {
        assert!(!text("-n SOFT 1").is_block(9, 1));
        assert!(text("-n DEV 1").is_block(2, 1));
        assert!(text("-n DEV,SOFT 1").is_block(1, 1));
        let banner = Banner {
            system: "Linux 6.1".to_owned(),
            host: "vm".to_owned(),
            day: "11/23/26".to_owned(),
            machine: "x86_64".to_owned(),
            cpus: 2,
        };
        assert_eq!(
            banner.text(),
            "Linux 6.1 (vm) \t11/23/26 \t_x86_64_\t(2 CPU)\n\n"
        );
    }
}
