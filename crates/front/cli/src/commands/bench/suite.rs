//! Test suites: RFC 2544 and related tests. Each command turns its options into a plan.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use wb_model::{
    Locator, Plan, Stream, TrafficJob,
    bench::{GoalPlan, Method, Modifier, Quantity, Service, Share, SuitePlan, SuiteTest, TestSize},
    plan::Procedure,
    text::plan_from_toml,
    units::{AddressRange, Mac, Span},
};
use wb_options::{Opt, Typed, options};
use wb_session::input::read_text;

use super::presets::{Preset, RFC2544_SIZES, SEARCH, goal, set_precision};
use crate::{
    args::{Frames, OutputArgs, ReceiveArgs, TransmitArgs, count_in, ids, take},
    run::run_plan,
    say::say,
};

/// Returns the ids of the options for ports and jobs, which a plan file has.
fn made_by_options() -> Vec<String> {
    let own = ["tx", "rx", "bidir", "rfc4814", "src6", "dst6"].map(str::to_owned);
    let groups = [
        ids::<Typed<Frames>>(),
        ids::<TransmitArgs>(),
        ids::<ReceiveArgs>(),
    ];
    own.into_iter().chain(groups.concat()).collect()
}

/// Options of all suites: device, frame sizes, loads and times.
#[derive(Args, Clone, Debug)]
pub(crate) struct SuiteArgs {
    /// Plan file with the ports and jobs of a trial; options override its [procedure.suite], if any.
    #[arg(
        value_name = "PLAN.toml",
        conflicts_with_all = made_by_options()
    )]
    plan: Option<PathBuf>,
    /// Sending port.
    #[arg(long, value_name = "PORT", required_unless_present = "plan")]
    tx: Option<Locator>,
    /// Receiving port.
    #[arg(long, value_name = "PORT", required_unless_present = "plan")]
    rx: Option<Locator>,
    /// Also send the same streams in the reverse direction, at the same load.
    #[arg(long)]
    bidir: bool,
    /// Frame sizes with FCS, each tested separately: sizes, imix, or a genome of RFC 6985 (7a4d1g); or one mix by
    /// weights (64:7,570:4) [default: of the plan's streams, else of the standard; rfc2544: all seven; ndr: 64 and
    /// imix; reset: 64; y1564: 512; others: 64, 512 and 1518].
    #[arg(long, value_name = "SIZES", value_delimiter = ',')]
    sizes: Vec<TestSize>,
    /// Finish within minutes: short trials, few repetitions; noted in the report.
    #[arg(long, conflicts_with = "conformance")]
    fast: bool,
    /// Use the times and limits of the standards: trials of 60 s, settle 5 s, 0.1 % of the line, 20 streams for
    /// latency, 50 searches for bursts, TTL 10; takes hours.
    #[arg(long)]
    conformance: bool,
    /// Confirm that the network is isolated (RFC 6815), which skips the question before the start.
    #[arg(long)]
    isolated: bool,
    /// Length of a deciding trial; latency: of a stream, without measurement in its first half; recovery: of the
    /// overload and of the time after it; y1564: of the performance test [default: 10s; latency 20s, recovery 10s,
    /// y1564 15m].
    #[arg(long, value_name = "TIME")]
    duration: Option<Span>,
    #[command(flatten)]
    limits: Typed<Limits>,
    /// Skip the initial measurement of the tester's own limit.
    #[arg(long)]
    no_ceiling: bool,
    #[command(flatten)]
    conditions: Typed<Conditions>,
    /// Use random source MACs (unicast, not local), source ports (1024-65535) and destination ports (1-49151),
    /// derived from the seed (RFC 4814), for devices that hash frames. A router accepts only its own destination MAC.
    #[arg(long)]
    rfc4814: bool,
    /// Mix IPv4 and IPv6 (RFC 5180): shares of IPv6 frames, one run for each share. Throughput and loss are also
    /// reported per version. Other frame options apply to both versions, --src and --dst to IPv4 only.
    #[arg(
        long,
        value_name = "SHARE",
        value_delimiter = ',',
        conflicts_with = "ipv6"
    )]
    ipv6_share: Vec<Share>,
    /// Source addresses of the IPv6 frames with --ipv6-share [default: 2001:2:0:1::2].
    #[arg(long, value_name = "ADDR", requires = "ipv6_share")]
    src6: Option<AddressRange>,
    /// Destination addresses of the IPv6 frames with --ipv6-share [default: 2001:2:0:8001::2].
    #[arg(long, value_name = "ADDR", requires = "ipv6_share")]
    dst6: Option<AddressRange>,
    #[command(flatten)]
    device: Typed<Device>,
    #[command(flatten)]
    frames: Typed<Frames>,
    #[command(flatten)]
    transmit: TransmitArgs,
    #[command(flatten)]
    receive: ReceiveArgs,
    #[command(flatten)]
    output: OutputArgs,
}

options! {
    /// Loads and times of trials.
    Limits: SuitePlan = SuitePlan::default(), "", [
        Opt::new("max", "LOAD"),
        Opt::new("min", "LOAD"),
        Opt::new("ramp", "TIME").key("times.ramp"),
        Opt::new("drain", "TIME").key("times.drain"),
        Opt::new("settle", "TIME").key("times.settle"),
    ]
}

options! {
    /// Modifiers of RFC 2544.
    Conditions: SuitePlan = SuitePlan::default(), "", [
        Opt::new("modifiers", "MODIFIER").list(),
        Opt::new("burst-lengths", "FRAMES").list(),
        Opt::new("filter-conditions", "1|25"),
        Opt::new("snmp-address", "ADDR")
            .key("management.address")
            .of("Modifier management"),
        Opt::new("snmp-community", "TEXT")
            .key("management.community")
            .of("Modifier management"),
    ]
}

options! {
    /// The device under test.
    Device: SuitePlan = SuitePlan::default(), "", [
        Opt::new("device-name", "TEXT").key("device.name").of("Device"),
        Opt::new("device-version", "TEXT").key("device.version"),
        Opt::new("device-config", "TEXT").key("device.configuration"),
    ]
}

/// Options for the precision of a search.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Search")]
pub(crate) struct PrecisionArgs {
    /// Search until the best passing and the lowest failing load differ by no more than this share of the failing
    /// load [default: 0.5 %].
    #[arg(long, value_name = "SHARE")]
    precision: Option<Share>,
    /// Highest loss share of a load that passes; ndr and pdr: of goal pdr [default: 0; goal pdr 0.5 %].
    #[arg(long, value_name = "SHARE")]
    loss: Option<Share>,
    /// Time limit for the search of one size, which then ends with its best result [default: 20m].
    #[arg(long, value_name = "TIME")]
    budget: Option<Span>,
}

/// Options for the throughput search.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Search")]
pub(crate) struct SearchArgs {
    #[command(flatten)]
    precision: PrecisionArgs,
    /// Search resolution as a share of the largest load, as in RFC 2544 tools, instead of --precision.
    #[arg(long, value_name = "SHARE", conflicts_with = "precision")]
    resolution: Option<Share>,
    /// Length of a search trial [default: 2s].
    #[arg(long, value_name = "TIME")]
    search_duration: Option<Span>,
    /// Loss verification: maximum repetitions of a failed trial; the load passes if one repetition passes (ETSI GS
    /// NFV-TST 009 section 12.3) [default: 0].
    #[arg(long, value_name = "N", conflicts_with = "mlr", value_parser = count_in::<u32>(0..))]
    repeats: Option<u32>,
    /// Use MLRsearch (RFC 9971) instead of bisection, so that a few unlucky trials do not decide.
    #[arg(long)]
    mlr: bool,
}

/// All or some tests of RFC 2544.
#[derive(Args, Debug)]
pub(crate) struct Rfc2544Args {
    #[command(flatten)]
    suite: SuiteArgs,
    /// Tests: throughput, latency, loss, b2b, recovery, reset, also ndr, mfr and impact [default: the first six,
    /// reset only with --trigger].
    #[arg(
        long,
        value_name = "TEST",
        value_delimiter = ',',
        help_heading = "Search"
    )]
    tests: Vec<SuiteTest>,
    #[command(flatten)]
    search: SearchArgs,
    #[command(flatten)]
    latency: Typed<LatencyLoads>,
    #[command(flatten)]
    step: Typed<LoadStep>,
    #[command(flatten)]
    repeated: RepeatedArgs,
    #[command(flatten)]
    reset: Typed<Reset>,
}

/// Options of `ndr` and `pdr`.
#[derive(Args, Debug)]
pub(crate) struct GoalArgs {
    #[command(flatten)]
    suite: SuiteArgs,
    #[command(flatten)]
    quantity: Typed<Searched>,
    /// Search goals: ndr and pdr (FD.io: trials of 1 s, 21 s at a load), rfc2544 (60 s), tst009 (60 s, 120 s)
    /// [default: ndr and pdr; `bench pdr`: pdr].
    #[arg(long, value_name = "GOAL", value_delimiter = ',', value_parser = goal)]
    goals: Vec<GoalPlan>,
    /// Use goal rfc2544: one lossy trial of 60 s decides.
    #[arg(long, conflicts_with = "goals")]
    strict: bool,
    #[command(flatten)]
    precision: PrecisionArgs,
}

options! {
    /// Load that is searched.
    Searched: SuitePlan = SuitePlan::default(), "Search", [
        Opt::new("of", "QUANTITY"),
        Opt::new("job", "NAME").with(|arg| arg.requires("plan")),
    ]
}

/// Options of `loss`.
#[derive(Args, Debug)]
pub(crate) struct LossArgs {
    #[command(flatten)]
    suite: SuiteArgs,
    #[command(flatten)]
    quantity: Typed<Searched>,
    #[command(flatten)]
    step: Typed<LoadStep>,
}

/// Options of `mfr`.
#[derive(Args, Debug)]
pub(crate) struct ForwardingArgs {
    #[command(flatten)]
    suite: SuiteArgs,
    #[command(flatten)]
    search: SearchArgs,
    #[command(flatten)]
    step: Typed<LoadStep>,
}

/// Options of `impact`.
#[derive(Args, Debug)]
pub(crate) struct ImpactArgs {
    #[command(flatten)]
    suite: SuiteArgs,
    #[command(flatten)]
    loads: Typed<ImpactLoads>,
}

/// Options of `latency`.
#[derive(Args, Debug)]
pub(crate) struct LatencyTestArgs {
    #[command(flatten)]
    suite: SuiteArgs,
    #[command(flatten)]
    search: SearchArgs,
    #[command(flatten)]
    latency: Typed<LatencyLoads>,
    #[command(flatten)]
    repeated: RepeatedArgs,
}

/// Options of `b2b` and `recovery`.
#[derive(Args, Debug)]
pub(crate) struct BurstArgs {
    #[command(flatten)]
    suite: SuiteArgs,
    #[command(flatten)]
    search: SearchArgs,
    #[command(flatten)]
    repeated: RepeatedArgs,
}

/// Options of `reset`.
#[derive(Args, Debug)]
pub(crate) struct ResetTestArgs {
    #[command(flatten)]
    suite: SuiteArgs,
    #[command(flatten)]
    reset: Typed<Reset>,
}

/// Options of `y1564`.
#[derive(Args, Debug)]
pub(crate) struct ServiceArgs {
    #[command(flatten)]
    suite: SuiteArgs,
    #[command(flatten)]
    service: Typed<Promise>,
}

options! {
    /// Attributes of a service.
    Promise: Service = Service::default(), "Service", [
        Opt::new("cir", "RATE")
            .help("Committed information rate, required unless the plan has services: 20mbps-l2 counts frames with FCS, as services are sold; 20mbps adds preamble and gap")
            .with(|arg| arg.required_unless_present("plan").conflicts_with("plan")),
        Opt::new("eir", "RATE").with(|arg| arg.conflicts_with("plan")),
        Opt::new("delay", "TIME").with(|arg| arg.conflicts_with("plan")),
        Opt::new("variation", "TIME").with(|arg| arg.conflicts_with("plan")),
        Opt::new("loss", "SHARE").with(|arg| arg.conflicts_with("plan")),
        Opt::new("availability", "SHARE").with(|arg| arg.conflicts_with("plan")),
        Opt::new("step-time", "TIME").key("step"),
    ]
}

options! {
    /// Loads of delay measurements.
    LatencyLoads: SuitePlan = SuitePlan::default(), "Search", [
        Opt::new("latency-load", "SHARE").key("latency.loads").list(),
    ]
}

options! {
    /// Loads of impact tests.
    ImpactLoads: SuitePlan = SuitePlan::default(), "Search", [
        Opt::new("loads", "SHARE").key("impact.loads").list(),
    ]
}

options! {
    /// Step from load to load.
    LoadStep: SuitePlan = SuitePlan::default(), "Search", [Opt::new("step", "SHARE")]
}

options! {
    /// Reset of the device.
    Reset: SuitePlan = SuitePlan::default(), "Reset", [
        Opt::new("trigger", "CMD").key("reset.trigger"),
        Opt::new("reset-kind", "KIND").key("reset.kind"),
        Opt::new("patience", "TIME").key("reset.patience"),
    ]
}

/// Options for repeated measurements.
#[derive(Args, Debug)]
#[command(next_help_heading = "Search")]
pub(crate) struct RepeatedArgs {
    /// Repetitions: streams of latency, searches of bursts, overloads of recovery [default: 3, 10 and 5].
    #[arg(long, visible_alias = "n", value_name = "N", value_parser = count_in::<u32>(0..))]
    repetitions: Option<u32>,
}

/// Overrides a value if an option was given.
fn put<T: Clone>(into: &mut T, told: Option<&T>) {
    if let Some(told) = told {
        into.clone_from(told);
    }
}

/// Suite command: name, tests, and default frame sizes.
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// Empty for the tests of the plan, or of RFC 2544 without a plan.
    pub(super) tests: &'static [SuiteTest],
    pub(super) sizes: &'static [&'static str],
}

const fn of_one(test: SuiteTest, of: &'static [SuiteTest], sizes: &'static [&'static str]) -> Kind {
    Kind {
        name: test.name(),
        tests: of,
        sizes,
    }
}

const RFC2544: Kind = Kind {
    name: "rfc2544",
    tests: &[],
    sizes: &RFC2544_SIZES,
};
// The smallest frames demand most of a device per bit, and imix is typical of networks. Practical performance lies
// between the two.
const NDR: Kind = of_one(SuiteTest::Ndr, &[SuiteTest::Ndr], &["64", "imix"]);
const PDR: Kind = Kind { name: "pdr", ..NDR };
const SOME_SIZES: &[&str] = &["64", "512", "1518"];
const LOSS: Kind = of_one(SuiteTest::Loss, &[SuiteTest::Loss], SOME_SIZES);
const LATENCY: Kind = of_one(SuiteTest::Latency, &[SuiteTest::Latency], SOME_SIZES);
const MFR: Kind = of_one(SuiteTest::Mfr, &[SuiteTest::Mfr], SOME_SIZES);
const IMPACT: Kind = of_one(SuiteTest::Impact, &[SuiteTest::Impact], SOME_SIZES);
const B2B: Kind = of_one(SuiteTest::B2b, &[SuiteTest::B2b], SOME_SIZES);
const RECOVERY: Kind = of_one(SuiteTest::Recovery, &[SuiteTest::Recovery], SOME_SIZES);
const RESET: Kind = of_one(SuiteTest::Reset, &[SuiteTest::Reset], &["64"]);
const Y1564: Kind = of_one(SuiteTest::Y1564, &[SuiteTest::Y1564], &["512"]);

impl SuiteArgs {
    const fn preset(&self) -> Preset {
        match (self.fast, self.conformance) {
            (true, _) => Preset::Fast,
            (_, true) => Preset::Conformance,
            _ => Preset::Usual,
        }
    }

    /// Returns the ports and jobs of a trial, and the suite of the plan file before options are applied.
    fn base(&self) -> Result<(Plan, Option<SuitePlan>)> {
        let (Some(tx), Some(rx)) = (&self.tx, &self.rx) else {
            return self.read();
        };
        let mut cpus = self.transmit.cpu_list()?;
        let tx = self.transmit.port(tx.clone(), &mut cpus)?;
        let mut rx = self.receive.port(rx.clone(), tx.xdp_mode);
        rx.cpus = take(&mut cpus, rx.workers)?;
        if self.bidir {
            rx.workers = rx.workers.max(tx.workers);
        }
        let mut stream = self.frames.over(&self.preset().stream());
        if self.rfc4814 {
            randomise(&mut stream);
        }
        let streams = match self.ipv6_share.is_empty() {
            true => vec![stream],
            false => both_versions(stream, self.src6, self.dst6),
        };
        let plan = Plan {
            ports: vec![tx, rx],
            traffic: vec![TrafficJob {
                tx: Some("tx".to_owned()),
                rx: Some("rx".to_owned()),
                bidir: self.bidir,
                streams,
                ..TrafficJob::default()
            }],
            ..Plan::default()
        };
        Ok((plan, None))
    }

    fn read(&self) -> Result<(Plan, Option<SuitePlan>)> {
        let file = self.plan.as_ref();
        let file = file.expect("clap asks for it where there are no ports");
        let name = file.display().to_string();
        let text = read_text(file).with_context(|| format!("cannot read {name}"))?;
        let mut plan = plan_from_toml(&name, &text)?;
        match plan.procedure.take() {
            Some(Procedure::Suite(suite)) => Ok((plan, Some(*suite))),
            None => Ok((plan, None)),
            Some(Procedure::Lb(_)) => {
                bail!("{name}: a plan for a load balancer; run it with `wirebench bench lb`")
            }
        }
    }

    /// Returns the plan of a command; `more` adds its specific options to the suite.
    fn made(&self, kind: &Kind, more: impl FnOnce(&mut SuitePlan)) -> Result<Plan> {
        let (mut plan, known) = self.base()?;
        let is_known = known.is_some();
        let mut suite = known.unwrap_or_default();
        if !kind.tests.is_empty() {
            suite.tests = kind.tests.to_vec();
        } else if !is_known {
            suite.tests.retain(|test| *test != SuiteTest::Reset);
        }
        if self.plan.is_none() {
            let sizes = kind.sizes.iter().filter_map(|size| size.parse().ok());
            suite.sizes = sizes.collect();
        }
        if !self.sizes.is_empty() {
            suite.sizes = tests_of(&self.sizes)?;
        }
        if !self.ipv6_share.is_empty() {
            suite.ipv6_shares.clone_from(&self.ipv6_share);
            if kind.tests.is_empty() && !is_known {
                // RFC 5180 defines no IPv6 bursts, and a burst has no shares.
                suite.tests.retain(|test| *test != SuiteTest::B2b);
            }
        }
        if self.frames.value().is_ipv6() || !self.ipv6_share.is_empty() {
            raise_for_ipv6(&mut suite.sizes, !self.sizes.is_empty());
        }
        if !is_known {
            suite.times.search = Some(SEARCH);
        }
        self.preset().apply(&mut suite);
        let has_times = |test: &SuiteTest| {
            matches!(
                test,
                SuiteTest::Latency | SuiteTest::Recovery | SuiteTest::Y1564
            )
        };
        if !kind.tests.iter().any(has_times) {
            put(&mut suite.times.trial, self.duration.as_ref());
        }
        suite = self.limits.over(&suite);
        suite.ceiling &= !self.no_ceiling;
        suite.isolated |= self.isolated;
        suite = self.device.over(&self.conditions.over(&suite));
        for (option, key, modifier) in [
            ("--burst-lengths", "burst_lengths", Modifier::Bursts),
            (
                "--filter-conditions",
                "filter_conditions",
                Modifier::Filters,
            ),
            ("--snmp-address", "management.address", Modifier::Management),
            (
                "--snmp-community",
                "management.community",
                Modifier::Management,
            ),
        ] {
            if self.conditions.has(key) && !suite.has(modifier) {
                let name = modifier.name();
                bail!("{option} needs --modifiers {name}");
            }
        }
        more(&mut suite);
        if suite.of != Quantity::Frames && self.sizes.is_empty() {
            suite.sizes.clear();
        }
        // A search trial is at most as long as a deciding trial.
        let longest = suite.times.trial;
        suite.times.search = suite.times.search.map(|time| time.min(longest));
        plan.kind = format!("bench {}", kind.name);
        plan.procedure = Some(Procedure::Suite(Box::new(suite)));
        Ok(plan)
    }

    fn run(&self, kind: &Kind, more: impl FnOnce(&mut SuitePlan)) -> Result<u8> {
        let base = self.plan.as_ref().and_then(|file| file.parent());
        let plan = self.made(kind, more)?;
        run_plan(plan, &self.output, base.map(PathBuf::from))
    }
}

/// Returns the tests of `--sizes`. A comma separates two tests, or two weights of one mix.
fn tests_of(sizes: &[TestSize]) -> Result<Vec<TestSize>> {
    let weights = sizes.iter().filter(|size| size.name.contains(':')).count();
    if weights == 0 {
        return Ok(sizes.to_vec());
    }
    let names: Vec<&str> = sizes.iter().map(|size| size.name.as_str()).collect();
    let all = names.join(",");
    if weights < sizes.len() {
        bail!(
            "--sizes {all}: cannot combine the weights of a mix with single sizes; give the mix alone, or as a genome of RFC 6985 (7a4d1g)"
        );
    }
    Ok(vec![all.parse().with_context(|| format!("--sizes {all}"))?])
}

/// Raises frame size 64, the usual request, to 84 bytes, which IPv6, UDP and a test tag need (RFC 8219 section 4.2).
fn raise_for_ipv6(sizes: &mut [TestSize], tell: bool) {
    let [small, raised] = ["64", "84"].map(|size| size.parse::<TestSize>().ok());
    let (Some(small), Some(raised)) = (small, raised) else {
        return;
    };
    for size in sizes.iter_mut().filter(|size| size.model == small.model) {
        *size = raised.clone();
        if tell {
            say("sizes: 64 is raised to 84, the smallest frame with IPv6, UDP and a test tag");
        }
    }
}

/// Returns IPv4 and IPv6 streams with the same frames, except extension headers, which only IPv6 has.
fn both_versions(
    stream: Stream,
    src6: Option<AddressRange>,
    dst6: Option<AddressRange>,
) -> Vec<Stream> {
    let named = |name: &str, stream: Stream| Stream {
        name: name.to_owned(),
        ..stream
    };
    let v6 = Stream {
        ipv6: true,
        src: src6,
        dst: dst6,
        ..stream.clone()
    };
    let v4 = Stream {
        ext: Vec::new(),
        ..stream
    };
    vec![named("IPv4", v4), named("IPv6", v6)]
}

/// Randomises addresses and ports as in RFC 4814 sections 4.3 and 4.5, from the seed of the plan.
fn randomise(stream: &mut Stream) {
    // Base for the bits that the mask leaves unchanged.
    stream.src_mac = stream.src_mac.or(Some(Mac([0, 0, 0, 0, 0, 1])));
    let words = [
        "src-mac=random:00:00:00:00:00:00-ff:ff:ff:ff:ff:ff,mask=0xfcffffffffff",
        "sport=random:1024-65535",
        "dport=random:1-49151",
    ];
    stream
        .vary
        .extend(words.iter().filter_map(|word| word.parse().ok()));
}

impl PrecisionArgs {
    fn apply(&self, suite: &mut SuitePlan) {
        if let Some(precision) = self.precision {
            set_precision(suite, precision);
        }
        put(&mut suite.search.budget, self.budget.as_ref());
    }
}

impl SearchArgs {
    fn apply(&self, suite: &mut SuitePlan) {
        self.precision.apply(suite);
        let search = &mut suite.search;
        put(&mut search.loss, self.precision.loss.as_ref());
        if self.resolution.is_some() {
            (search.precision, search.resolution) = (None, self.resolution);
        }
        put(&mut search.repeats, self.repeats.as_ref());
        if self.mlr {
            (search.method, search.repeats) = (Method::Mlr, 0);
        }
        suite.times.search = self.search_duration.or(suite.times.search);
    }
}

impl RepeatedArgs {
    fn apply(&self, suite: &mut SuitePlan) {
        put(&mut suite.latency.repetitions, self.repetitions.as_ref());
        put(&mut suite.b2b.searches, self.repetitions.as_ref());
        put(&mut suite.recovery.repetitions, self.repetitions.as_ref());
    }
}

/// `bench rfc2544`.
pub(super) fn rfc2544(args: &Rfc2544Args) -> Result<u8> {
    args.suite.run(&RFC2544, |suite| {
        *suite = args.reset.over(suite);
        let known = suite.tests.contains(&SuiteTest::Reset);
        if args.reset.has("reset.trigger") && !known {
            suite.tests.push(SuiteTest::Reset);
        }
        if !args.tests.is_empty() {
            suite.tests.clone_from(&args.tests);
        }
        args.search.apply(suite);
        *suite = args.step.over(&args.latency.over(suite));
        args.repeated.apply(suite);
    })
}

fn goals(args: &GoalArgs, kind: &Kind, alone: &[&str]) -> Result<u8> {
    args.suite.run(kind, |suite| {
        *suite = args.quantity.over(suite);
        let strict = args.strict || (args.suite.conformance && args.goals.is_empty());
        let named = |names: &[&str]| names.iter().filter_map(|n| GoalPlan::named(n)).collect();
        let goals: Vec<GoalPlan> = match (strict, args.goals.is_empty()) {
            (true, _) => named(&["rfc2544"]),
            (false, false) => args.goals.clone(),
            (false, true) => named(alone),
        };
        if !goals.is_empty() {
            suite.search.goals = goals;
        }
        let known = suite.search.precision;
        if let Some(precision) = args.precision.precision.or(known) {
            set_precision(suite, precision);
        }
        args.precision.apply(suite);
        if let Some(loss) = args.precision.loss {
            suite.search.goals = suite.goals();
            let of_loss = suite.search.goals.iter_mut().filter(|g| g.loss.0 > 0.0);
            of_loss.for_each(|goal| goal.loss = loss);
        }
    })
}

/// `bench ndr`.
pub(super) fn ndr(args: &GoalArgs) -> Result<u8> {
    goals(args, &NDR, &[])
}

/// `bench pdr`.
pub(super) fn pdr(args: &GoalArgs) -> Result<u8> {
    goals(args, &PDR, &["pdr"])
}

/// `bench loss`.
pub(super) fn loss(args: &LossArgs) -> Result<u8> {
    args.suite.run(&LOSS, |suite| {
        *suite = args.step.over(&args.quantity.over(suite));
    })
}

/// `bench mfr`.
pub(super) fn mfr(args: &ForwardingArgs) -> Result<u8> {
    args.suite.run(&MFR, |suite| {
        *suite = args.step.over(suite);
        args.search.apply(suite);
    })
}

/// `bench impact`.
pub(super) fn impact(args: &ImpactArgs) -> Result<u8> {
    args.suite.run(&IMPACT, |suite| {
        *suite = args.loads.over(suite);
    })
}

/// `bench latency`.
pub(super) fn latency(args: &LatencyTestArgs) -> Result<u8> {
    args.suite.run(&LATENCY, |suite| {
        if let Some(duration) = args.suite.duration {
            suite.latency.duration = duration;
            suite.latency.after = Span::from_nanos(duration.as_nanos() / 2);
        }
        args.search.apply(suite);
        *suite = args.latency.over(suite);
        args.repeated.apply(suite);
    })
}

/// `bench b2b`.
pub(super) fn b2b(args: &BurstArgs) -> Result<u8> {
    args.suite.run(&B2B, |suite| {
        args.search.apply(suite);
        args.repeated.apply(suite);
    })
}

/// `bench recovery`.
pub(super) fn recovery(args: &BurstArgs) -> Result<u8> {
    args.suite.run(&RECOVERY, |suite| {
        put(&mut suite.recovery.overload, args.suite.duration.as_ref());
        put(&mut suite.recovery.half, args.suite.duration.as_ref());
        args.search.apply(suite);
        args.repeated.apply(suite);
    })
}

/// `bench reset`.
pub(super) fn reset(args: &ResetTestArgs) -> Result<u8> {
    if !args.reset.has("reset.trigger") && args.suite.plan.is_none() {
        bail!(
            "reset needs --trigger with the command that resets the device: --trigger 'ssh dut reboot'"
        );
    }
    args.suite
        .run(&RESET, |suite| *suite = args.reset.over(suite))
}

/// `bench y1564`.
pub(super) fn y1564(args: &ServiceArgs) -> Result<u8> {
    args.suite.run(&Y1564, |suite| {
        if args.suite.plan.is_none() {
            let mut service = args.service.value();
            args.suite.preset().apply_to_service(&mut service);
            suite.services = vec![service];
        }
        for service in &mut suite.services {
            *service = args.service.over(service);
            put(&mut service.performance, args.suite.duration.as_ref());
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_between_sizes_and_between_weights() {
        let read = |text: &str| {
            let sizes: Vec<TestSize> = text.split(',').map(|s| s.parse().unwrap()).collect();
            tests_of(&sizes).map(|sizes| sizes.iter().map(|s| s.name.clone()).collect::<Vec<_>>())
        };
        assert_eq!(read("64,imix,7a4d1g").unwrap(), ["64", "imix", "7a4d1g"]);
        assert_eq!(read("64:7,570:4,1518:1").unwrap(), ["64:7,570:4,1518:1"]);
        let refused = read("64,64:7,570:4").unwrap_err().to_string();
        assert!(
            refused.starts_with("--sizes 64,64:7,570:4: cannot combine the weights"),
            "{refused}"
        );
    }
}
