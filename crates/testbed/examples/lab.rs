//! Labs by hand: `lab up KIND [JSON]`, `lab ls`, `lab down NAME`, `lab down --all [--force]`,
//! `lab exec NODE CMD…`, `lab run KIND [JSON] -- CMD…`; JSON is a `LabOptions`. `lab user …` runs
//! the same commands in a new user namespace.

use std::process::ExitCode;

use wb_testbed::{LabOptions, Result, TestbedError, no_daemons};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match command(&arguments) {
        Ok(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn command(arguments: &[String]) -> Result<i32> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [wb_testbed::impair::DEVICE_COMMAND, file] => {
            wb_testbed::impair::device_main(std::path::Path::new(file))?;
        }
        ["user", ..] => {
            wb_testbed::enter_user_namespace()?;
            return command(&arguments[1..]);
        }
        ["up", kind] => print(&wb_testbed::up(
            kind.parse()?,
            &LabOptions::default(),
            &no_daemons,
            None,
        )?),
        ["up", kind, json] => print(&wb_testbed::up(
            kind.parse()?,
            &options(json)?,
            &no_daemons,
            None,
        )?),
        ["ls"] => print(&wb_testbed::list_labs()?),
        ["port", node, interface] => print(&wb_testbed::find_port(Some(node), interface)),
        ["down", "--all"] => print(&wb_testbed::down_all(false)?),
        ["down", "--all", "--force"] => print(&wb_testbed::down_all(true)?),
        ["down", name] => wb_testbed::down(name)?,
        ["exec", node, ..] => return wb_testbed::exec(node, &arguments[2..]),
        ["run", kind, "--", ..] => {
            return wb_testbed::run(
                kind.parse()?,
                &LabOptions::default(),
                &no_daemons,
                &arguments[3..],
            );
        }
        ["run", kind, json, "--", ..] => {
            return wb_testbed::run(kind.parse()?, &options(json)?, &no_daemons, &arguments[4..]);
        }
        _ => {
            return Err(TestbedError::Input(
                "up, ls, port, down, exec or run; see the source".into(),
            ));
        }
    }
    Ok(0)
}

fn options(json: &str) -> Result<LabOptions> {
    serde_json::from_str(json).map_err(|error| TestbedError::Input(error.to_string()))
}

fn print(value: &impl serde::Serialize) {
    println!(
        "{}",
        serde_json::to_string_pretty(value).expect("plain data")
    );
}
