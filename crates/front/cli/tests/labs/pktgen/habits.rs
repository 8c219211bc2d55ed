//! Implicit assumptions of scripts: a file that reports at once that its device is done, a
//! script without a first line, one busy interface among others, a folder that is gone once reported so.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use super::{Folder, PATIENCE, counted, sent, text};
use crate::kit::{Lab, Running, eventually, privileged, run};

#[test]
fn a_device_that_is_done_says_so_while_another_runs() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let folder = Folder::mount(&lab.node("a"), &[]);
    folder.device("a0", &["count 10"]);
    folder.device_on(1, "a0@slow", &["count 0", "delay 2000000000"]);
    let writer = folder.starter();
    eventually("the device is done", || {
        folder.result("a0").contains("usec")
    });
    assert!(
        folder
            .read("kpktgend_0")
            .starts_with("Running: \nStopped: a0 \n")
    );
    assert_eq!(sent(&folder.result("a0")).packets, 10);
    assert!(folder.read("kpktgend_1").starts_with("Running: a0@slow \n"));
    // Values written into its file now stay there when the others end.
    folder.set("a0", "count 20");
    assert_eq!(folder.result("a0"), "OK: count=20");
    folder.set("pgctrl", "stop");
    assert_eq!(text(&writer.finish(PATIENCE).stdout), "returned\n");
    assert_eq!(folder.result("a0"), "OK: count=20");
    assert!(sent(&folder.result("a0@slow")).packets < 100);
}

#[test]
fn a_busy_interface_holds_up_no_other() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--links", "2"]);
    let b = lab.node("b");
    let port = lab.a0();
    let endless = [
        "tx",
        "-q",
        "-i",
        &port,
        "--rate",
        "100pps",
        "--duration",
        "60s",
    ];
    let _busy = Running::start(&endless);
    eventually("the port is in use", || counted(&b, "b0", "rx") > 20);
    let folder = Folder::mount(&lab.node("a"), &[]);
    folder.device("a0", &["count 10"]);
    folder.device("a1", &["count 10"]);
    let before = counted(&b, "b1", "rx");
    assert_eq!(
        text(&folder.starter().finish(PATIENCE).stdout),
        "returned\n"
    );
    assert_eq!(sent(&folder.result("a1")).packets, 10);
    assert_eq!(counted(&b, "b1", "rx") - before, 10);
    let refused = folder.result("a0");
    assert!(
        refused.starts_with("ERROR: ") && refused.contains("a0"),
        "{refused}"
    );
}

#[test]
fn a_script_without_a_first_line_runs_as_in_a_shell() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("plain");
    // The words of articles: `function` is one of bash alone.
    fs::write(&path, "function pgset() { echo $1 > $PGDEV; }\nPGDEV=/proc/net/pktgen/kpktgend_0\npgset \"add_device $1\"\necho ran $2\nexit 3\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let node = lab.node("a");
    let words = [path.to_str().unwrap(), "a0", "b c"];
    let output = run(&[&["pktgen", "run", "--netns", &node], &words[..]].concat());
    assert_eq!(
        text(&output.stdout),
        "ran b c\n",
        "{}",
        text(&output.stderr)
    );
    assert_eq!(output.status.code(), Some(3));
}

/// A folder that is unmounted also after a failed test.
struct Unmounted<'a>(&'a str);

impl Drop for Unmounted<'_> {
    fn drop(&mut self) {
        let _ = run(&["pktgen", "umount", self.0]);
    }
}

#[test]
fn a_daemon_is_up_or_says_why_not_and_is_gone_when_its_folder_is() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let node = lab.node("a");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let mount = || run(&["pktgen", "mount", path, "--netns", &node, "--daemon"]);
    let _folder = Unmounted(path);
    let first = mount();
    assert_eq!(first.status.code(), Some(0), "{}", text(&first.stderr));
    let said = text(&first.stdout);
    let process = said.trim_end().rsplit(' ').next().unwrap().to_owned();
    // A zombie process counts as ended.
    let alive = || {
        let status = fs::read_to_string(Path::new("/proc").join(&process).join("status"));
        status.is_ok_and(|s| !s.contains("State:\tZ"))
    };
    assert!(alive(), "{said}");
    // Many times, as a daemon that was refused takes a moment to end.
    for _ in 0..20 {
        let second = mount();
        assert_eq!(second.status.code(), Some(2), "{}", text(&second.stdout));
        assert_eq!(text(&second.stdout), "");
        let why = text(&second.stderr);
        assert!(why.contains("already a control folder"), "{why}");
    }

    // In the kernel's folder, a missing name cannot be looked up, either.
    let error = fs::create_dir(dir.path().join("new")).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    let error = fs::rename(dir.path().join("pgctrl"), dir.path().join("new")).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);

    let gone = run(&["pktgen", "umount", path]);
    assert_eq!(gone.status.code(), Some(0), "{}", text(&gone.stderr));
    assert!(!alive(), "the process is there after its folder");
}
