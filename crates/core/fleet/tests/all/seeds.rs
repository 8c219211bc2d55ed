//! Random faults: 1,000 seeds, in four tests that run side by side.

use std::panic::{AssertUnwindSafe, catch_unwind};

use wb_fleet_core::message::StopHow;

use crate::world::{Fault, MS, Random, SECOND, Settings, World};

/// A short run on eight hosts with faults of this seed.
fn run(seed: u64) {
    let mut random = Random::new(seed ^ 0xfee1);
    let hosts = 8;
    let mut jobs: Vec<(usize, usize, bool)> = Vec::new();
    for _ in 0..random.between(1, 6) {
        let from = random.between(0, hosts - 1) as usize;
        let to = random.between(0, hosts - 1) as usize;
        jobs.push((from, to, random.chance(300)));
    }
    let settings = Settings {
        hosts: hosts as usize,
        delay_ns: (MS / 10, random.between(MS, 50 * MS)),
        loss: [0, 1, 20][random.between(0, 2) as usize],
        repeats: random.between(0, 50),
        lease_ns: random.between(1, 5) * SECOND,
        interval_ns: random.between(2, 10) * 100 * MS,
        duration_ns: random.between(1, 30) * 100 * MS,
        controllers: random.between(1, 2) as usize,
        min_agents: random.chance(300).then_some(2),
        refusals: [0, 0, 20][random.between(0, 2) as usize],
        jobs,
        ..Settings::default()
    };
    let mut world = World::new(settings, seed);
    for _ in 0..random.between(0, 3) {
        let at_ns = random.between(10 * MS, 5 * SECOND);
        let back_ns = at_ns + random.between(100 * MS, 6 * SECOND);
        let host = random.between(0, hosts - 1) as usize;
        let (fault, back) = match random.between(0, 7) {
            0 | 1 => (Fault::KillAgent(host), Some(Fault::StartAgent(host))),
            2 => (Fault::KillController(0), Some(Fault::StartController(0))),
            3 => (Fault::KillBroker, Some(Fault::StartBroker)),
            4 => (Fault::Cut(host), Some(Fault::Join(host))),
            5 => (Fault::Stall(0, random.between(MS, 3 * SECOND)), None),
            6 => (Fault::FailPort(host), None),
            _ => match random.chance(500) {
                true => (Fault::Stop(StopHow::Drain), None),
                false => (Fault::Stop(StopHow::Now), None),
            },
        };
        world.fault_at(at_ns, fault);
        if let Some(back) = back {
            world.fault_at(back_ns, back);
        }
    }
    world.run_while(120 * SECOND, |world| !world.is_quiet());
    world.check_end();
}

fn run_seeds(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed))) {
            eprintln!("seed {seed} fails");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn invariants_hold_for_seeds_from_0() {
    run_seeds(0..250);
}

#[test]
fn invariants_hold_for_seeds_from_250() {
    run_seeds(250..500);
}

#[test]
fn invariants_hold_for_seeds_from_500() {
    run_seeds(500..750);
}

#[test]
fn invariants_hold_for_seeds_from_750() {
    run_seeds(750..1000);
}
