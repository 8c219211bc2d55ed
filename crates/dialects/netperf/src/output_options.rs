//! Output options of a command line: everything that affects the printed text but not the test
//! itself. The test is in the plan's `SocketJob`.

use wb_model::socket::Family;

/// Output options, and the words of the command line that appear in the output.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputOptions {
    /// Test name for titles and tables.
    pub kind: TestKind,
    /// Prints exactly the text of netperf 2.7. Without it, some output is longer or corrected:
    /// addresses of the banner, `-f b`, a file of selectors, our additional selectors in `all`.
    pub strict: bool,
    /// `-P`: banner and column headers.
    pub headers: bool,
    /// `-v`: verbosity.
    pub verbosity: u32,
    /// `-f`: letter of the unit; `None` depends on the test.
    pub unit: Option<char>,
    /// `-B`: label of the result.
    pub brand: Option<String>,
    /// Test-specific `-o`, `-O`, `-k`; the default of OMNI is `Human`.
    pub form: OutputForm,
    /// Word after `-o`, `-O` or `-k`.
    pub selection: Option<String>,
    /// Content of the file named by [`crate::FigureSelection::file_of`], read by the caller.
    pub selection_file: Option<String>,
    /// Local end of the data connection.
    pub local: TypedEnd,
    /// Server end of the data connection.
    pub remote: TypedEnd,
    /// Server end of the control connection: `-H`, `-p`.
    pub control: TypedEnd,
    /// Local end of the control connection: `-L`, the second value of `-p`.
    pub control_local: TypedEnd,
    /// `-c`: local CPU use.
    pub local_cpu: bool,
    /// `-C`: remote CPU use.
    pub remote_cpu: bool,
    /// `-T` was given.
    pub cpu_bind: bool,
    /// `-V` of the test: copy avoidance.
    pub copy_avoidance: bool,
    /// `-D` was given: interim lines are printed.
    pub demo: bool,
    /// `-u` of the test, or a result of [`crate::uuid`].
    pub uuid: String,
    /// Words of the command line, starting with the program name, joined by blanks.
    pub command_line: String,
    /// `-F`, first value.
    pub local_fill_file: Option<String>,
    /// `-F`, second value.
    pub remote_fill_file: Option<String>,
}

impl Default for OutputOptions {
    fn default() -> Self {
        Self {
            kind: TestKind::TcpStream,
            strict: false,
            headers: true,
            verbosity: 1,
            unit: None,
            brand: None,
            form: OutputForm::Classic,
            selection: None,
            selection_file: None,
            local: TypedEnd::default(),
            remote: TypedEnd::default(),
            control: TypedEnd {
                port: wb_model::socket::CONTROL_PORT,
                ..TypedEnd::default()
            },
            control_local: TypedEnd::default(),
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

/// One end of a connection according to the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypedEnd {
    /// Host as typed, without family and mask; `None` if absent. A data connection without a host
    /// uses that of the control connection.
    pub host: Option<String>,
    /// Requested port; 0 is any.
    pub port: u16,
    /// Requested address family.
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
    /// OMNI; its options choose the direction.
    Omni,
    /// LOC_CPU.
    LocalCpu,
    /// REM_CPU.
    RemoteCpu,
    /// UUID.
    Uuid,
}

/// Format of the results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OutputForm {
    /// Separate table for each test.
    #[default]
    Classic,
    /// `-o`: a line of headers, a line of values.
    Csv,
    /// `-O`: columns below four lines of headers.
    Human,
    /// `-k`: a line `NAME=value` for each selector.
    KeyValue,
}
