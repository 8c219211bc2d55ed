//! Mounting and unmounting of control folders, including those of killed processes.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use crate::common::{PATIENCE, Place, Playground, Toy, mount_or_skip};
use rustix::process::{Pid, Signal, kill_process};
use wb_fuse::{
    ControlFiles, MountError, MountOptions, dead_folders, is_control_folder, mount, remove_dead,
    unmount,
};

const DAEMON: &str = "WB_FUSE_TEST_DAEMON";

/// Not a test: the process that other tests start, kill and unmount.
#[test]
fn daemon() {
    let Some(dir) = std::env::var_os(DAEMON) else {
        return;
    };
    let toy = Arc::new(Toy::default());
    let mounted = mount_or_skip(Path::new(&dir), &toy).expect("the caller has mounted before");
    println!("\nready");
    assert!(mounted.wait(PATIENCE), "nobody has unmounted it");
}

/// Its output is kept open, because a closed pipe would break its last messages.
struct Daemon {
    child: Child,
    _output: BufReader<ChildStdout>,
}

impl Daemon {
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn start_daemon(dir: &Path) -> Daemon {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "mounting::daemon", "--nocapture"])
        .env(DAEMON, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut lines = output.by_ref().lines().map_while(Result::ok);
    assert!(lines.any(|line| line == "ready"));
    Daemon {
        child,
        _output: output,
    }
}

#[test]
fn dropped_it_is_unmounted() {
    let Some(play) = Playground::new() else {
        return;
    };
    let dir = play.dir.path().to_owned();
    assert!(is_control_folder(&dir).unwrap());
    let again = mount(
        &dir,
        Arc::clone(&play.toy) as Arc<dyn ControlFiles>,
        &MountOptions::default(),
    );
    let error = again.unwrap_err();
    assert!(matches!(error, MountError::InUse { .. }), "{error}");
    assert!(!play.mounted.is_gone());
    drop(play);
    assert!(!is_control_folder(&dir).unwrap());
}

/// Also covers the folder of a killed process, which each mount would replace.
#[test]
fn one_of_several_mounts_at_the_same_time_succeeds() {
    let dir = tempfile::tempdir().unwrap();
    let toy = Arc::new(Toy::default());
    if mount_or_skip(dir.path(), &toy).is_none() {
        return;
    }
    for round in 0..20 {
        if round % 2 == 1 {
            start_daemon(dir.path()).kill();
        }
        let all_ready = Barrier::new(4);
        let one = || {
            all_ready.wait();
            let files = Arc::new(Toy::default()) as Arc<dyn ControlFiles>;
            mount(dir.path(), files, &MountOptions::default())
        };
        let results: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(one)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let errors: Vec<_> = results.iter().filter_map(|r| r.as_ref().err()).collect();
        assert_eq!(errors.len(), 3, "{errors:?}");
        let in_use = |e: &&MountError| matches!(e, MountError::InUse { .. });
        assert!(errors.iter().all(in_use), "{errors:?}");
        assert!(is_control_folder(dir.path()).unwrap());
        drop(results);
        assert!(!is_control_folder(dir.path()).unwrap());
    }
}

#[test]
fn no_thread_keeps_the_files() {
    let dir = tempfile::tempdir().unwrap();
    let toy = Arc::new(Toy::default());
    let Some(mounted) = mount_or_skip(dir.path(), &toy) else {
        return;
    };
    assert!(Arc::strong_count(&toy) > 1);
    drop(mounted);
    assert_eq!(Arc::strong_count(&toy), 1);
}

#[test]
fn a_mount_in_use_is_unmounted_all_the_same() {
    let Some(play) = Playground::new() else {
        return;
    };
    let dir = play.dir.path().to_owned();
    let inside = fs::File::open(dir.join("log")).unwrap();
    drop(play);
    assert!(!is_control_folder(&dir).unwrap());
    drop(inside);
}

#[test]
fn unmounted_from_outside_it_is_gone() {
    let Some(play) = Playground::new() else {
        return;
    };
    assert!(!play.mounted.wait(Duration::ZERO));
    unmount(play.dir.path()).unwrap();
    assert!(play.mounted.wait(PATIENCE));
    assert!(play.mounted.is_gone());
    let error = unmount(play.dir.path()).unwrap_err().to_string();
    assert!(
        error.contains("not a control folder: ") && error.contains("; nothing is mounted there"),
        "{error}"
    );
}

#[test]
fn gone_is_noticed_though_somebody_is_still_inside() {
    let Some(play) = Playground::new() else {
        return;
    };
    let inside = fs::File::open(play.dir.path().join("log")).unwrap();
    unmount(play.dir.path()).unwrap();
    assert!(play.mounted.wait(PATIENCE));
    drop(inside);
}

#[test]
fn the_daemon_learns_that_it_was_unmounted() {
    let Some(play) = Playground::new() else {
        return;
    };
    drop(play);
    let dir = Place::new();
    let mut daemon = start_daemon(dir.path());
    assert!(
        fs::read_to_string(dir.path().join("log"))
            .unwrap()
            .contains("Result")
    );
    unmount(dir.path()).unwrap();
    assert!(daemon.child.wait().unwrap().success());
}

#[test]
fn a_killed_one_is_replaced_or_unmounted() {
    let Some(play) = Playground::new() else {
        return;
    };
    drop(play);
    let dir = Place::new();
    for _ in 0..2 {
        start_daemon(dir.path()).kill();
    }
    // The second daemon has replaced the first; its own remains are there now.
    let error = fs::metadata(dir.path()).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOTCONN));
    assert!(is_control_folder(dir.path()).unwrap());
    let toy = Arc::new(Toy::default());
    let mounted = mount_or_skip(&dir.path().join(""), &toy).unwrap();
    assert!(
        fs::read_to_string(dir.path().join("log"))
            .unwrap()
            .contains("Result")
    );
    drop(mounted);

    start_daemon(dir.path()).kill();
    unmount(dir.path()).unwrap();
    assert!(fs::read_dir(dir.path()).unwrap().next().is_none());
}

#[test]
fn dead_ones_are_found_and_taken_away_and_no_others() {
    let Some(play) = Playground::new() else {
        return;
    };
    drop(play);
    let [dead, living, stopped] = [Place::new(), Place::new(), Place::new()];
    start_daemon(dead.path()).kill();
    let _living = start_daemon(living.path());
    // A stopped process runs, but does not respond.
    let hung = start_daemon(stopped.path());
    let pid = Pid::from_child(&hung.child);
    kill_process(pid, Signal::STOP).unwrap();
    // Other tests have separate folders; only these two count.
    let ours = |found: Vec<PathBuf>| -> Vec<PathBuf> {
        let mine = [dead.path(), living.path(), stopped.path()];
        let mine = mine.map(|dir| dir.to_owned());
        found.into_iter().filter(|dir| mine.contains(dir)).collect()
    };
    let dead_now = ours(dead_folders().unwrap());
    let removed = remove_dead(dead.path()).map_err(|e| e.to_string());
    kill_process(pid, Signal::CONT).unwrap();
    assert_eq!(dead_now, [dead.path()]);
    assert_eq!(removed, Ok(()));
    assert!(fs::read_dir(dead.path()).unwrap().next().is_none());
    assert!(!is_control_folder(dead.path()).unwrap());
    for dir in [&living, &stopped] {
        // Nor is it removed when requested by name.
        remove_dead(dir.path()).unwrap();
        assert!(is_control_folder(dir.path()).unwrap());
        assert!(fs::metadata(dir.path()).is_ok());
    }
}

#[test]
fn what_is_no_folder_or_not_ours_is_said_so() {
    let dir = tempfile::tempdir().unwrap();
    let try_mount = |path: &Path| {
        let toy = Arc::new(Toy::default()) as Arc<dyn ControlFiles>;
        mount(path, toy, &MountOptions::default())
            .unwrap_err()
            .to_string()
    };
    let none = dir.path().join("none");
    let error = try_mount(&none);
    assert!(
        error.contains("mkdir -p") && error.contains("No such file"),
        "{error}"
    );
    fs::write(&none, "").unwrap();
    let error = try_mount(&none);
    assert!(error.contains("ot a directory"), "{error}");
    let error = unmount(Path::new("/proc")).unwrap_err().to_string();
    assert!(error.contains("of type proc"), "{error}");
    let error = unmount(&dir.path().join("nowhere"))
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("cannot unmount"), "{error}");
}
