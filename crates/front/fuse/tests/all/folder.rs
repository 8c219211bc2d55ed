//! Shells read and write control files like those of procfs.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::common::{LONG, Playground};

#[test]
fn commands_arrive_one_by_one() {
    let Some(play) = Playground::new() else {
        return;
    };
    assert_eq!(play.bash("echo pkt_size 60 > log; echo more >> log"), "");
    assert_eq!(play.toy.written(), ["pkt_size 60\n", "more\n"]);
    // The builtin writes line by line if it is line buffered, else all at once: one write, one
    // command in either case.
    assert_eq!(play.bash("printf 'one\\ntwo\\n' > log"), "");
    assert_eq!(play.toy.written().concat(), "one\ntwo\n");
    assert_eq!(play.bash("{ echo a; echo b; } > log; echo -n c > log"), "");
    assert_eq!(play.toy.written(), ["a\n", "b\n", "c"]);
    assert_eq!(play.bash("echo -n > log"), "");
    assert!(
        play.toy.written().is_empty(),
        "an empty write does not arrive"
    );
}

#[test]
fn writers_are_known() {
    let Some(play) = Playground::new() else {
        return;
    };
    let pid: u32 = play
        .bash("echo hello > log; echo $$")
        .trim()
        .parse()
        .unwrap();
    let writer = play.toy.with(|state| state.writers[0]);
    assert_eq!(
        (writer.pid, writer.uid),
        (pid, rustix::process::geteuid().as_raw())
    );
}

#[test]
fn tools_read_a_file_of_size_zero() {
    let Some(play) = Playground::new() else {
        return;
    };
    assert!(play.bash("cat log").ends_with("Result: OK: log\n"));
    assert_eq!(play.bash("grep -c 'Result: OK:' log"), "1\n");
    assert_eq!(play.bash("wc -c < rest"), format!("{LONG}\n"));
    assert_eq!(play.bash("head -c 1002 rest | tail -c 4"), "aabb");
    assert_eq!(play.bash("x=$(< ctl); echo \"$x\""), "Blocked: 0\n");
    assert_eq!(
        play.bash("while read -r a b; do echo \"$b\"; done < ctl"),
        "0\n"
    );
    assert_eq!(play.bash("dd if=ctl bs=3 count=2 status=none"), "Blocke");
    assert_eq!(play.bash("cp ctl /dev/stdout"), "Blocked: 0\n");
    assert_eq!(
        play.bash("stat -c '%s %a %F' log rest"),
        "0 600 regular empty file\n0 400 regular empty file\n"
    );
    assert_eq!(
        play.bash("stat -c %i log > /dev/null; cp log /dev/null; ls -i | sort -u | wc -l"),
        "5\n"
    );
    let list = play.bash("ls");
    assert_eq!(list, "ctl\ngone\nlog\nrefuse\nrest\n");
}

#[test]
fn tests_of_the_shell() {
    let Some(play) = Playground::new() else {
        return;
    };
    let script = "[[ -w log ]] && echo writable; [[ -f ctl ]] && echo file; [[ -d . ]] && echo folder; \
        [[ -e none ]] || echo none";
    assert_eq!(play.bash(script), "writable\nfile\nfolder\nnone\n");
}

#[test]
fn one_reading_is_one_snapshot() {
    let Some(play) = Playground::new() else {
        return;
    };
    play.toy.add("counted", "first content");
    let mut file = File::open(play.dir.path().join("counted")).unwrap();
    let mut start = [0; 5];
    file.read_exact(&mut start).unwrap();
    play.toy.add("counted", "another one");
    let mut rest = String::new();
    file.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, " content");
    file.seek(SeekFrom::Start(0)).unwrap();
    rest.clear();
    file.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "another one");
}

#[test]
fn refusals_are_told_in_the_words_of_the_system() {
    let Some(play) = Playground::new() else {
        return;
    };
    let line = |number: i32| play.bash(&format!("echo {number} > refuse"));
    assert!(line(libc::EINVAL).contains("write error: Invalid argument"));
    assert!(line(libc::EPERM).contains("write error: Operation not permitted"));
    assert!(line(libc::ENODEV).contains("write error: No such device"));
    assert!(line(libc::EBUSY).contains("write error: Device or resource busy"));
    assert!(line(libc::E2BIG).contains("write error: Argument list too long"));
    assert!(
        play.bash("echo x > ctl")
            .contains("write error: Invalid argument")
    );
    assert!(
        play.bash("echo x > gone")
            .contains("write error: Input/output error"),
        "no answer"
    );
    assert!(play.bash("cat gone").contains("No such device"));
}

#[test]
fn files_can_neither_be_made_nor_changed() {
    let Some(play) = Playground::new() else {
        return;
    };
    assert!(
        play.bash("echo x > none")
            .contains("none: No such file or directory")
    );
    assert!(
        play.bash("cat none")
            .contains("none: No such file or directory")
    );
    // In the kernel's folder, a missing name cannot be looked up, either.
    for (command, answer) in [
        ("rm log", "not permitted"),
        ("mkdir x", "No such file or directory"),
        ("mv log log2", "No such file or directory"),
        ("ln -s a b", "No such file or directory"),
        ("chmod 777 .", "not permitted"),
        ("chown 65534 log", "not permitted"),
        ("rmdir log", "Not a directory"),
    ] {
        let told = play.bash(command);
        assert!(told.contains(answer), "{command}: {told}");
    }
    assert_eq!(play.bash("touch log; truncate -s 0 log"), "");
    assert_eq!(play.bash("chmod 640 log && stat -c %a log"), "640\n");
    assert!(play.toy.written().is_empty());
    let here = fs::metadata(play.dir.path()).unwrap();
    assert_eq!(here.permissions().mode() & 0o777, 0o555);
    assert_eq!(here.uid(), rustix::process::geteuid().as_raw());
}

#[test]
fn every_way_to_open_is_fine() {
    let Some(play) = Playground::new() else {
        return;
    };
    let path = play.dir.path().join("log");
    let ways = [
        OpenOptions::new().write(true).clone(),
        OpenOptions::new().write(true).truncate(true).clone(),
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .clone(),
        OpenOptions::new().append(true).clone(),
        OpenOptions::new().append(true).create(true).clone(),
        OpenOptions::new().read(true).write(true).clone(),
    ];
    for way in ways {
        let mut file = way.open(&path).unwrap();
        file.write_all(b"a").unwrap();
        file.write_all(b"b").unwrap();
        assert_eq!(play.toy.written(), ["a", "b"], "{way:?}");
    }
    let error = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EEXIST));
}

#[test]
fn a_long_write_arrives_whole() {
    let Some(play) = Playground::new() else {
        return;
    };
    let text = "x".repeat(wb_fuse::MAX_WRITE as usize);
    let mut file = OpenOptions::new()
        .write(true)
        .open(play.dir.path().join("log"))
        .unwrap();
    file.write_all(text.as_bytes()).unwrap();
    assert_eq!(play.toy.written(), [text]);
}

#[test]
fn files_come_and_go() {
    let Some(play) = Playground::new() else {
        return;
    };
    assert!(play.bash("cat eth0").contains("No such file"));
    play.toy.add("eth0", "here\n");
    assert_eq!(
        play.bash("cat eth0; echo x > eth0; ls | grep eth"),
        "here\neth0\n"
    );
    let mut open = File::open(play.dir.path().join("eth0")).unwrap();
    play.toy.remove("eth0");
    assert!(play.bash("cat eth0").contains("No such file"));
    let error = open.read(&mut [0; 10]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
    for n in 0..300 {
        play.toy.add(&format!("a-device-with-a-long-name-{n}"), "");
    }
    assert_eq!(play.bash("ls | wc -l"), "305\n");
}

#[test]
fn another_user_is_kept_out_by_the_modes() {
    let Some(play) = Playground::new() else {
        return;
    };
    if !rustix::process::geteuid().is_root() {
        wb_testing::skipped("needs root");
        return;
    }
    let dir = play.dir.path().display();
    let uids = fs::read_to_string("/proc/self/uid_map").unwrap();
    if uids.split_ascii_whitespace().nth(2) == Some("1") {
        wb_testing::skipped("this user namespace has one user only");
        return;
    }
    let other = "setpriv --reuid=65534 --regid=65534 --clear-groups";
    let told = play.bash(&format!(
        "{other} ls {dir} | head -1; {other} cat {dir}/log"
    ));
    assert!(
        told.starts_with("ctl\n") && told.contains("log: Permission denied"),
        "{told}"
    );
}
