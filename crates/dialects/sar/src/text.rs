//! sar's tables.

use std::fmt::Write;

use wb_counters::{Folded, LinkCounters, LinkRates, softnet::SoftnetRise};

use crate::{SarTable, TableRequest};

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
pub struct ReportTimes {
    /// Text in front of headers.
    pub before: String,
    /// Text in front of lines.
    pub now: String,
}

impl ReportTimes {
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
pub struct TableFormatter {
    tables: Vec<SarTable>,
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
enum ValueCell {
    Rate(f64),
    /// Bytes per second, shown in kB or with the letter of the unit.
    Bytes(f64),
    Percent(f64),
    Count(u64),
    /// Not available.
    Unknown,
}

impl TableFormatter {
    /// Makes the formatter of a request.
    #[must_use]
    pub fn new(request: &TableRequest) -> Self {
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
        let lines = |table: &SarTable| {
            if *table == SarTable::Soft {
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
    pub fn interval_lines(
        &self,
        moment: &ReportTimes,
        links: &[LinkRow],
        cpus: &[CpuRow],
        headers: bool,
        gap: bool,
    ) -> String {
        let mut text = String::new();
        for table in &self.tables {
            if headers {
                self.append_header(&mut text, *table, &moment.before);
            }
            match table {
                SarTable::Soft => self.append_soft(&mut text, &moment.now, cpus),
                table => self.append_links(&mut text, *table, &moment.now, links),
            }
            if gap {
                text.push('\n');
            }
        }
        text
    }

    fn append_header(&self, text: &mut String, table: SarTable, stamp: &str) {
        let (name, columns): (_, &[&str]) = match table {
            SarTable::Dev => ("IFACE", &DEV),
            SarTable::Edev => ("IFACE", &EDEV),
            SarTable::Soft => ("CPU", &SOFT),
        };
        let _ = write!(text, "{stamp:<11}");
        self.append_front_name(text, table, name);
        for column in columns {
            let _ = write!(text, " {column:>9}");
        }
        self.append_back_name(text, table, name);
    }

    /// Writes a name before the columns.
    fn append_front_name(&self, text: &mut String, table: SarTable, name: &str) {
        let _ = match table {
            SarTable::Soft => write!(text, " {name:>7}"),
            _ if self.pretty => Ok(()),
            _ => write!(text, " {name:>9}"),
        };
    }

    /// Writes a name after the columns, and the line end.
    fn append_back_name(&self, text: &mut String, table: SarTable, name: &str) {
        if self.pretty && table != SarTable::Soft {
            let _ = write!(text, " {name}");
        }
        text.push('\n');
    }

    fn append_row(
        &self,
        text: &mut String,
        table: SarTable,
        stamp: &str,
        name: &str,
        cells: &[ValueCell],
    ) {
        let _ = write!(text, "{stamp:<11}");
        self.append_front_name(text, table, name);
        for cell in cells {
            text.push(' ');
            self.append_cell(text, cell);
        }
        self.append_back_name(text, table, name);
    }

    fn append_cell(&self, text: &mut String, cell: &ValueCell) {
        let digits = self.decimals;
        let _ = match cell {
            ValueCell::Rate(value) => write!(text, "{value:9.digits$}"),
            ValueCell::Bytes(value) if self.human => {
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
            ValueCell::Bytes(value) => write!(text, "{:9.digits$}", value / 1024.0),
            ValueCell::Percent(value) if self.human => write!(text, "{value:8.*}%", digits.min(1)),
            ValueCell::Percent(value) => write!(text, "{value:9.digits$}"),
            ValueCell::Count(value) => write!(text, "{value:>9}"),
            ValueCell::Unknown => write!(text, "{:>9}", "n/a"),
        };
    }

    fn append_links(&self, text: &mut String, table: SarTable, stamp: &str, links: &[LinkRow]) {
        for link in links {
            let Some((counted, rates)) = &link.counted else {
                let columns = if table == SarTable::Dev {
                    DEV.len()
                } else {
                    EDEV.len()
                };
                let unknown: Vec<ValueCell> = (0..columns).map(|_| ValueCell::Unknown).collect();
                self.append_row(text, table, stamp, &link.name, &unknown);
                continue;
            };
            // sar omits an interface only if all its counters are zero, in any table.
            if self.omit_zero && counted.named().all(|(_, n)| n == 0) {
                continue;
            }
            let folded = counted.folded();
            let cells = match table {
                SarTable::Dev => dev_cells(&folded, rates, link.seconds),
                _ => edev_cells(&folded, link.seconds),
            };
            self.append_row(text, table, stamp, &link.name, &cells);
        }
    }

    #[allow(clippy::cast_precision_loss)]
    fn append_soft(&self, text: &mut String, stamp: &str, cpus: &[CpuRow]) {
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
            let mut cells: Vec<ValueCell> =
                counts.iter().map(|n| rate_cell(*n, row.seconds)).collect();
            cells.push(ValueCell::Count(counted.backlog));
            let name = row.cpu.map_or("all".to_owned(), |cpu| cpu.to_string());
            self.append_row(text, SarTable::Soft, stamp, &name, &cells);
        }
    }
}

#[allow(clippy::cast_precision_loss)]
fn rate_cell(count: u64, seconds: f64) -> ValueCell {
    ValueCell::Rate(if seconds > 0.0 {
        count as f64 / seconds
    } else {
        0.0
    })
}

fn dev_cells(folded: &Folded, rates: &LinkRates, seconds: f64) -> Vec<ValueCell> {
    vec![
        ValueCell::Rate(rates.rx_pps),
        ValueCell::Rate(rates.tx_pps),
        ValueCell::Bytes(rates.rx_bytes_per_s),
        ValueCell::Bytes(rates.tx_bytes_per_s),
        rate_cell(folded.rx_compressed, seconds),
        rate_cell(folded.tx_compressed, seconds),
        rate_cell(folded.multicast, seconds),
        ValueCell::Percent(rates.ifutil_percent.unwrap_or(0.0)),
    ]
}

fn edev_cells(folded: &Folded, seconds: f64) -> Vec<ValueCell> {
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
    counts.map(|count| rate_cell(count, seconds)).into()
}

#[cfg(test)]
mod tests {
    use wb_counters::{LinkCounters, LinkProperties};

    use super::*;
    use crate::{SarAction, parse};

    fn text(line: &str) -> TableFormatter {
        let words: Vec<String> = line.split(' ').map(ToOwned::to_owned).collect();
        match parse(&words) {
            Ok(SarAction::Tables(request)) => TableFormatter::new(&request),
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

    fn moment() -> ReportTimes {
        ReportTimes {
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
        let shown = text("-n DEV,EDEV,SOFT 1").interval_lines(
            &moment(),
            &[lo(), gone],
            &[soft],
            true,
            true,
        );
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
        let shown = text("-h -n DEV 1").interval_lines(&moment(), &[lo()], &[], true, false);
        let expected = "\
18:57:25      rxpck/s   txpck/s    rxkB/s    txkB/s   rxcmp/s   txcmp/s  rxmcst/s   %ifutil IFACE
18:57:26     10322.00      0.00      7.9M      0.0B      0.00      0.00      0.00      0.0% lo
";
        assert_eq!(shown, expected);
        let mut small = lo();
        if let Some((_, rates)) = &mut small.counted {
            rates.rx_bytes_per_s = 1_010.0;
        }
        let shown = text("-h -n DEV 1").interval_lines(&moment(), &[small], &[], false, false);
        assert!(shown.contains(" 1010.0B "), "{shown}");
        let shown = text("--human --dec=0 -n DEV 1").interval_lines(
            &ReportTimes::average(),
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
