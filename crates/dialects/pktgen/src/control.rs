//! The folder of control files as a state machine: takes text, returns text and effects.
//!
//! Starts and sends nothing. The caller passes reads and writes of the files, and carries out the
//! [`WriteEffect`]s:
//!
//! 1. [`PktgenFiles::write`] returns [`WriteEffect::Start`]: [`PktgenFiles::start_devices`] returns one [`ReadyDevice`] per device, and a
//!    worker runs each job.
//! 2. During a run, [`PktgenFiles::record_progress`] takes live counters, and [`PktgenFiles::live_config`] returns changed
//!    settings.
//! 3. [`PktgenFiles::record_end`] (or [`PktgenFiles::record_failure`]) ends a device. The blocked writer of `start` gets its answer
//!    when [`PktgenFiles::is_running`] is false.
//!
//! ```
//! use wb_pktgen::{control::{ControlOptions, PktgenFiles, WriteEffect}, machine::{Interface, PktgenMachine}};
//!
//! struct Host;
//! impl PktgenMachine for Host {
//!     fn interface(&self, name: &str) -> Option<Interface> {
//!         (name == "eth0").then(Interface::default)
//!     }
//!     fn node_possible(&self, node: i32) -> bool { node == 0 }
//!     fn may_administer(&self) -> bool { true }
//! }
//!
//! let mut folder = PktgenFiles::new([0, 1], ControlOptions::default());
//! folder.write("kpktgend_0", b"add_device eth0\n", &Host)?;
//! folder.write("eth0", b"pkt_size 60\n", &Host)?;
//! let text = folder.read("eth0", &Host, 0)?;
//! assert!(text.ends_with(b"Result: OK: pkt_size=60\n"));
//! assert_eq!(folder.write("pgctrl", b"start\n", &Host), Ok(WriteEffect::Start));
//! # Ok::<(), wb_pktgen::errno::Errno>(())
//! ```

use std::collections::BTreeMap;

use crate::device::{DeviceId, PktgenDevice, keep_drawn};
use crate::errno::Errno;
use crate::keywords::{self, CommandTarget};
use crate::machine::{Link, PktgenMachine};
use crate::pgrx::{self, PgrxReceiver};
use crate::result::DeviceReport;
use crate::scanner::{self, Scanner};
use wb_model::device::{Defaults, DeviceConfig, Flags};
use wb_pktgen_device::DeviceProgress;
use wb_pktgen_device::{Memory, Start, TimeForm, Walker};

/// Settings of a folder.
#[derive(Clone, Copy, Debug, Default)]
pub struct ControlOptions {
    /// Initial settings of new devices.
    pub defaults: Defaults,
    /// Rejects clones and bursts if the kernel's driver could not send them. If false, every interface
    /// accepts them, since no such limit exists outside the kernel.
    pub strict_sharing: bool,
    /// Format of the time in packets.
    pub time_form: TimeForm,
    /// Dialect of the receiver `pgrx`.
    pub receiver: pgrx::ReceiverDialect,
}

/// Action that the caller must take after a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteEffect {
    /// No action.
    None,
    /// Run every device, and answer the writer when all have stopped.
    Start,
    /// Stop every device without waiting.
    Stop,
    /// Stop every device. All are removed already, so running devices cannot report.
    Reset,
    /// Stop the devices of this CPU's thread. They are removed already.
    RemoveAll {
        /// The CPU.
        cpu: u32,
    },
    /// The receiver took a command. The caller may have to open or close the source of its
    /// packets.
    Receive(pgrx::ReceiverCommand),
}

/// A device ready to run.
#[derive(Clone, Debug)]
pub struct ReadyDevice {
    /// The device.
    pub id: DeviceId,
    /// CPU of its worker.
    pub cpu: u32,
    /// The interface to send on.
    pub interface: String,
    /// Generator of its packets.
    pub walker: Walker,
}

#[derive(Debug, Default)]
struct DeviceThread {
    result: Option<String>,
}

/// The control files of one network namespace.
#[derive(Debug)]
pub struct PktgenFiles {
    threads: BTreeMap<u32, DeviceThread>,
    /// Devices in the order of adding.
    devices: Vec<PktgenDevice>,
    next_id: u64,
    options: ControlOptions,
    debug: u64,
    warnings: Vec<String>,
    receiver: PgrxReceiver,
}

/// Maximum length of a device name, in characters.
const DEVICE_NAME: usize = 31;
/// Maximum length of a command of a thread file or of `pgrx`, in characters.
const COMMAND: usize = 39;
/// Maximum number of characters that `pgctrl` reads.
const ORDER: usize = 127;

impl PktgenFiles {
    /// Makes a folder with a thread for each of `cpus` and no device.
    pub fn new(cpus: impl IntoIterator<Item = u32>, options: ControlOptions) -> Self {
        let threads: BTreeMap<_, _> = cpus
            .into_iter()
            .map(|cpu| (cpu, DeviceThread::default()))
            .collect();
        Self {
            receiver: PgrxReceiver::new(threads.keys().copied(), options.receiver),
            threads,
            devices: Vec::new(),
            next_id: 0,
            debug: options.defaults.debug,
            options,
            warnings: Vec::new(),
        }
    }

    /// Names of all files.
    pub fn file_names(&self) -> Vec<String> {
        let mut files = vec!["pgctrl".to_owned(), "pgrx".to_owned()];
        files.extend(self.threads.keys().map(|cpu| format!("kpktgend_{cpu}")));
        files.extend(self.devices.iter().map(|d| file_name(&d.file)));
        files
    }

    /// Returns true if a file with this name exists.
    pub fn has_file(&self, file: &str) -> bool {
        self.locate_file(file).is_ok()
    }

    /// The receiver behind `pgrx`.
    pub const fn receiver(&self) -> &PgrxReceiver {
        &self.receiver
    }

    /// The receiver behind `pgrx`, mutable, for passing packets.
    pub const fn receiver_mut(&mut self) -> &mut PgrxReceiver {
        &mut self.receiver
    }

    /// Returns true if `debug` is on.
    pub const fn is_verbose(&self) -> bool {
        self.debug != 0
    }

    /// Returns the log lines since the last call.
    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    fn locate_file(&self, file: &str) -> Result<ControlFile, Errno> {
        match file {
            "pgctrl" => return Ok(ControlFile::Control),
            "pgrx" => return Ok(ControlFile::Receiver),
            _ => {}
        }
        let file = scanner::bytes_to_text(file.as_bytes());
        if let Some(index) = self.devices.iter().position(|d| d.file == file) {
            return Ok(ControlFile::Device(index));
        }
        self.threads
            .keys()
            .find(|cpu| file == format!("kpktgend_{cpu}"))
            .map(|cpu| ControlFile::Thread(*cpu))
            .ok_or(Errno::Enoent)
    }

    /// Content of a file. `now_ns` is CLOCK_MONOTONIC.
    ///
    /// Returns bytes instead of text, because names and addresses appear exactly as written.
    ///
    /// # Errors
    /// [`Errno::Enoent`] if the file does not exist.
    pub fn read(
        &self,
        file: &str,
        world: &dyn PktgenMachine,
        now_ns: u64,
    ) -> Result<Vec<u8>, Errno> {
        let text = match self.locate_file(file)? {
            ControlFile::Control => {
                "Packet Generator for packet performance testing. Version: 2.75\n".to_owned()
            }
            ControlFile::Receiver => self.receiver.file_text(),
            ControlFile::Thread(cpu) => self.show_thread(cpu),
            ControlFile::Device(index) => {
                let device = &self.devices[index];
                let interface = world.interface(&device.interface);
                device.file_text(interface.as_ref(), now_ns)
            }
        };
        Ok(scanner::text_to_bytes(&text))
    }

    fn show_thread(&self, cpu: u32) -> String {
        let names = |running| -> String {
            // The newest device is first, and a blank follows each.
            let newest_first = self.devices.iter().rev();
            newest_first
                .filter(|d| d.cpu == cpu && d.running == running)
                .map(|d| format!("{} ", d.config.name))
                .collect()
        };
        let result = self.threads.get(&cpu).and_then(|t| t.result.as_deref());
        format!(
            "Running: {}\nStopped: {}\nResult: {}\n",
            names(true),
            names(false),
            result.unwrap_or("NA")
        )
    }

    /// Writes to a file. A successful write counts as complete.
    ///
    /// # Errors
    /// The error for `write(2)` to return.
    pub fn write(
        &mut self,
        file: &str,
        written: &[u8],
        world: &dyn PktgenMachine,
    ) -> Result<WriteEffect, Errno> {
        let found = self.locate_file(file)?;
        if !matches!(found, ControlFile::Control)
            && let Some(first) = first_of_several(written)
        {
            self.warnings.push(format!(
                "{file}: several lines in one write: only the first is used, as in the kernel (`{first}`); write each line separately"
            ));
        }
        match found {
            ControlFile::Control => self.write_control(written, world),
            ControlFile::Receiver => self.write_receiver(written, world),
            ControlFile::Thread(cpu) => self.write_thread(cpu, written, world),
            ControlFile::Device(index) => self.write_device(index, written, world),
        }
    }

    fn write_control(
        &mut self,
        written: &[u8],
        world: &dyn PktgenMachine,
    ) -> Result<WriteEffect, Errno> {
        if !world.may_administer() {
            return Err(Errno::Eperm);
        }
        let order = written.strip_suffix(b"\n").unwrap_or(written);
        let order = &order[..order.len().min(ORDER)];
        let order = order.split(|b| *b == 0).next().unwrap_or_default();
        match order {
            b"start" => Ok(WriteEffect::Start),
            b"stop" => Ok(WriteEffect::Stop),
            b"reset" => {
                self.devices.clear();
                self.receiver.set_sending(false);
                Ok(WriteEffect::Reset)
            }
            _ => Err(Errno::Einval),
        }
    }

    fn write_receiver(
        &mut self,
        written: &[u8],
        world: &dyn PktgenMachine,
    ) -> Result<WriteEffect, Errno> {
        if written.is_empty() {
            return Err(Errno::Einval);
        }
        let mut scanner = Scanner::new(written);
        scanner.skip_separators();
        let name = scanner::bytes_to_text(&scanner.read_word(COMMAND));
        scanner.skip_separators();
        let argument = scanner.read_word(DEVICE_NAME);
        let argument = String::from_utf8_lossy(&argument);
        let exists = |name: &str| world.interface(name).is_some();
        let Some(command) = pgrx::ReceiverCommand::parse(&name, &argument, exists) else {
            self.warnings.push(format!(
                "pgrx: unknown command `{name} {argument}`; ignored"
            ));
            return Ok(WriteEffect::None);
        };
        if matches!(command, pgrx::ReceiverCommand::Rx { device: None }) && !argument.is_empty() {
            self.warnings.push(format!(
                "pgrx: no interface `{argument}`; all interfaces are used, as in the original"
            ));
        }
        self.receiver.execute(&command);
        Ok(WriteEffect::Receive(command))
    }

    fn write_thread(
        &mut self,
        cpu: u32,
        written: &[u8],
        world: &dyn PktgenMachine,
    ) -> Result<WriteEffect, Errno> {
        if written.is_empty() {
            return Err(Errno::Einval);
        }
        let mut scanner = Scanner::new(written);
        scanner.skip_separators();
        let command = scanner.read_word(COMMAND);
        scanner.skip_separators();
        let (result, outcome) = match command.as_slice() {
            b"add_device" => {
                let name = scanner::bytes_to_text(&scanner.read_word(DEVICE_NAME));
                match self.add_device(cpu, &name, world) {
                    Ok(()) => (format!("OK: add_device={name}"), Ok(WriteEffect::None)),
                    Err(errno) => (format!("ERROR: can not add device {name}"), Err(errno)),
                }
            }
            b"rem_device_all" => {
                self.devices.retain(|d| d.cpu != cpu);
                self.receiver.set_sending(self.is_running());
                (
                    "OK: rem_device_all".to_owned(),
                    Ok(WriteEffect::RemoveAll { cpu }),
                )
            }
            b"max_before_softirq" => (
                "OK: Note! max_before_softirq is obsoleted -- Do not use".to_owned(),
                Ok(WriteEffect::None),
            ),
            _ => return Err(Errno::Einval),
        };
        self.threads.entry(cpu).or_default().result = Some(result);
        outcome
    }

    fn add_device(&mut self, cpu: u32, name: &str, world: &dyn PktgenMachine) -> Result<(), Errno> {
        if self.devices.iter().any(|d| d.config.name == name) {
            return Err(Errno::Ebusy);
        }
        let config = DeviceConfig::new(name, &self.options.defaults);
        let name_of_interface = interface_of(&config.name);
        let interface = world.interface(&name_of_interface).ok_or(Errno::Enodev)?;
        if interface.link == Link::Other {
            return Err(Errno::Einval);
        }
        if !interface.up {
            return Err(Errno::Enetdown);
        }
        // A file cannot have such a name.
        if name.contains('/') {
            return Err(Errno::Einval);
        }
        self.devices.push(PktgenDevice {
            id: DeviceId(self.next_id),
            cpu,
            file: name.to_owned(),
            interface: name_of_interface,
            config,
            progress: DeviceProgress::default(),
            memory: Memory::default(),
            result: String::new(),
            running: false,
        });
        self.next_id += 1;
        Ok(())
    }

    fn write_device(
        &mut self,
        index: usize,
        written: &[u8],
        world: &dyn PktgenMachine,
    ) -> Result<WriteEffect, Errno> {
        let device = &mut self.devices[index];
        let before = device.config.clone();
        let (result, outcome) = keywords::execute_command(
            written,
            &mut CommandTarget {
                config: &mut device.config,
                interface: &device.interface,
                progress: &mut device.progress,
                debug: &mut self.debug,
                world,
                strict_sharing: self.options.strict_sharing,
                warnings: &mut self.warnings,
            },
        );
        device.progress.follow(&before, &device.config);
        if let Some(result) = result {
            device.result = result;
        }
        outcome.map(|()| WriteEffect::None)
    }

    /// Starts every device and returns the jobs in the order of adding. A device that cannot run
    /// reports the reason in its `Result:` and has no job. `now_ns` is CLOCK_MONOTONIC. Random choices depend
    /// only on `seed` and on the position of the device, as in the plan of the same devices.
    ///
    /// A call during a run restarts all devices; the caller must stop the workers of the old jobs
    /// first.
    pub fn start_devices(
        &mut self,
        now_ns: u64,
        seed: u64,
        world: &dyn PktgenMachine,
    ) -> Vec<ReadyDevice> {
        let mut jobs = Vec::new();
        for (number, device) in (0_u64..).zip(&mut self.devices) {
            device.running = false;
            let name = device.interface.clone();
            let Some(interface) = world.interface(&name) else {
                device.result = format!("ERROR: interface {name} is gone");
                continue;
            };
            self.warnings.extend(device.config.settle(&interface));
            if device.config.flags.has(Flags::IPSEC) {
                self.warnings.push(format!(
                    "{}: flag IPSEC: packets are sent unencrypted",
                    device.config.name
                ));
            }
            let start = Start {
                interface,
                cpu: device.cpu,
                seed: seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
                time_form: self.options.time_form,
                memory: device.memory.clone(),
                progress: DeviceProgress {
                    started_ns: now_ns,
                    stopped_ns: now_ns,
                    ..device.progress.clone()
                },
            };
            match Walker::new(device.config.clone(), &start) {
                Ok(walker) => {
                    device.progress = walker.progress().clone();
                    device.result = "Starting".to_owned();
                    device.running = true;
                    jobs.push(ReadyDevice {
                        id: device.id,
                        cpu: device.cpu,
                        interface: name,
                        walker,
                    });
                }
                Err(too_long) => device.result = format!("ERROR: {too_long}"),
            }
        }
        self.receiver.set_sending(!jobs.is_empty());
        jobs
    }

    /// Devices in the order of adding.
    pub fn devices(&self) -> impl Iterator<Item = &PktgenDevice> {
        self.devices.iter()
    }

    /// Returns true if any device runs.
    pub fn is_running(&self) -> bool {
        self.devices.iter().any(|d| d.running)
    }

    /// Present settings of a device for its walker; `None` if the device was removed.
    pub fn live_config(&self, id: DeviceId) -> Option<&DeviceConfig> {
        Some(&self.devices.iter().find(|d| d.id == id)?.config)
    }

    fn device_mut(&mut self, id: DeviceId) -> Option<&mut PktgenDevice> {
        self.devices.iter_mut().find(|d| d.id == id)
    }

    /// Records the progress of a running device.
    pub fn record_progress(&mut self, id: DeviceId, progress: &DeviceProgress) {
        if let Some(device) = self.device_mut(id).filter(|d| d.running) {
            device.progress.clone_from(progress);
        }
    }

    /// Records the end of a device and writes its report to `Result:`. `stopped_ns` is CLOCK_MONOTONIC,
    /// `idle_ns` the idle time of its worker. Ignores a device that was removed meanwhile.
    pub fn record_end(&mut self, id: DeviceId, walker: &Walker, stopped_ns: u64, idle_ns: u64) {
        if let Some(device) = self.device_mut(id) {
            device.progress = DeviceProgress {
                stopped_ns,
                idle_ns,
                ..walker.progress().clone()
            };
            device.memory = walker.memory().clone();
            keep_drawn(&mut device.config, walker.config());
            device.result = DeviceReport::of_device(walker.config(), &device.progress).text();
            device.running = false;
        }
        let running = self.is_running();
        self.receiver.set_sending(running);
    }

    /// Records the failure of a device; `reason` is one line.
    pub fn record_failure(&mut self, id: DeviceId, reason: &str, stopped_ns: u64) {
        if let Some(device) = self.device_mut(id) {
            device.progress.stopped_ns = stopped_ns;
            device.result = format!("ERROR: {reason}");
            device.running = false;
        }
        let running = self.is_running();
        self.receiver.set_sending(running);
    }

    /// Renames an interface: the files of its devices get the new name without tags.
    pub fn interface_renamed(&mut self, from: &str, to: &str) {
        for device in &mut self.devices {
            if device.interface == from {
                to.clone_into(&mut device.interface);
                device.file = scanner::bytes_to_text(to.as_bytes());
            }
        }
    }

    /// Removes an interface and its devices. Returns the running ones, which the caller must stop.
    pub fn interface_gone(&mut self, name: &str) -> Vec<DeviceId> {
        let ran = self
            .devices
            .iter()
            .filter(|d| d.running && d.interface == name)
            .map(|d| d.id)
            .collect();
        self.devices.retain(|d| d.interface != name);
        ran
    }
}

/// Interface of a device with this name: the name up to `@`.
fn interface_of(name: &str) -> String {
    let name = name.split('@').next().unwrap_or_default();
    String::from_utf8_lossy(&scanner::text_to_bytes(name)).into_owned()
}

/// File name as it appears in a path.
fn file_name(text: &str) -> String {
    String::from_utf8_lossy(&scanner::text_to_bytes(text)).into_owned()
}

/// A control file.
#[derive(Clone, Copy, Debug)]
enum ControlFile {
    Control,
    Receiver,
    Thread(u32),
    Device(usize),
}

/// First line of a write with several lines.
fn first_of_several(written: &[u8]) -> Option<String> {
    let written = written.trim_ascii();
    let end = written.iter().position(|byte| *byte == b'\n')?;
    Some(
        String::from_utf8_lossy(&written[..end])
            .trim_end()
            .to_owned(),
    )
}
