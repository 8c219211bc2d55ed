//! What a command line asked to see: all that decides the printed text and is no part of the test
//! itself. The test is in the plan's `SocketJob`.

use wb_model::socket::Family;

/// How results are printed, and the words of the command line that appear in them.
#[derive(Clone, Debug, PartialEq)]
pub struct Show {
    /// Which test was named, as titles and tables know it.
    pub kind: TestKind,
    /// Print exactly what netperf 2.7 prints, where we otherwise print more or what is right:
    /// addresses of the banner, `-f b`, a file of selectors, our own selectors in `all`.
    pub strict: bool,
    /// `-P`: banner and column headers.
    pub headers: bool,
    /// `-v`.
    pub verbosity: u32,
    /// `-f`: the letter of the unit; without it by the test.
    pub unit: Option<char>,
    /// `-B`.
    pub brand: Option<String>,
    /// Test-specific `-o`, `-O`, `-k`; OMNI without them is `Human`.
    pub form: Form,
    /// The word after `-o`, `-O` or `-k`.
    pub selection: Option<String>,
    /// Content of the file that [`crate::Selection::file_of`] names, which the caller reads.
    pub selection_file: Option<String>,
    /// This end of the data connection.
    pub local: ShownEnd,
    /// The server's end of the data connection.
    pub remote: ShownEnd,
    /// The server's end of the control connection: `-H`, `-p`.
    pub control: ShownEnd,
    /// This end of the control connection: `-L`, the second value of `-p`.
    pub control_local: ShownEnd,
    /// `-c`.
    pub local_cpu: bool,
    /// `-C`.
    pub remote_cpu: bool,
    /// `-T` was given.
    pub cpu_bind: bool,
    /// `-V` of the test: copy avoidance.
    pub copy_avoidance: bool,
    /// `-D` was given: interim lines are printed.
    pub demo: bool,
    /// `-u` of the test, or 16 drawn bytes by [`crate::uuid`].
    pub uuid: String,
    /// The words of the command line, the program's name first, joined by blanks.
    pub command_line: String,
    /// `-F`, the first value.
    pub local_fill_file: Option<String>,
    /// `-F`, the second value.
    pub remote_fill_file: Option<String>,
}

impl Default for Show {
    fn default() -> Self {
        Self {
            kind: TestKind::TcpStream,
            strict: false,
            headers: true,
            verbosity: 1,
            unit: None,
            brand: None,
            form: Form::Classic,
            selection: None,
            selection_file: None,
            local: ShownEnd::default(),
            remote: ShownEnd::default(),
            control: ShownEnd {
                port: wb_model::socket::CONTROL_PORT,
                ..ShownEnd::default()
            },
            control_local: ShownEnd::default(),
            local_cpu: false,
            remote_cpu: false,
            cpu_bind: false,
            copy_avoidance: false,
            demo: false,
            uuid: String::new(),
            command_line: String::new(),
            local_fill_file: None,
            remote_fill_file: None,
        }
    }
}

/// One end of a connection as the command line has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShownEnd {
    /// Host as typed, without family and mask; `None` if it was not given. Of the data connection,
    /// the control connection's holds where the test has none of its own.
    pub host: Option<String>,
    /// Port asked for; 0 is any.
    pub port: u16,
    /// Family asked for.
    pub family: Family,
}

/// A test by the name after `-t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TestKind {
    /// TCP_STREAM.
    TcpStream,
    /// TCP_MAERTS.
    TcpMaerts,
    /// TCP_SENDFILE.
    TcpSendfile,
    /// TCP_RR.
    TcpRr,
    /// TCP_CRR.
    TcpCrr,
    /// TCP_CC.
    TcpCc,
    /// TCP_MSS.
    TcpMss,
    /// UDP_STREAM.
    UdpStream,
    /// UDP_RR.
    UdpRr,
    /// SCTP_STREAM, SCTP_STREAM_MANY.
    SctpStream,
    /// SCTP_RR, SCTP_RR_MANY.
    SctpRr,
    /// OMNI: the direction decides.
    Omni,
    /// LOC_CPU.
    LocalCpu,
    /// REM_CPU.
    RemoteCpu,
    /// UUID.
    Uuid,
}

/// What the results look like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Form {
    /// The tables of each test.
    #[default]
    Classic,
    /// `-o`: a line of headers, a line of values.
    Csv,
    /// `-O`: columns below four lines of headers.
    Human,
    /// `-k`: a line `NAME=value` for each selector.
    KeyValue,
}
