//! Lists that go in pages.

use ostler_proto::v1alpha1::{MachineRecord, Operation, OperationPage};
use prost::Message;

use crate::answer::Answer;
use crate::bench::Bench;
use crate::check::PAGE;
use crate::driver::{Asked, Driver};
use crate::machine::{Machine, list, uids};
use crate::outcome::{Outcome, ensure};

/// Concurrent operations.
const LANES: u32 = 64;

/// More machines than one page takes, all with an instance.
pub(super) async fn many(driver: &Driver<'_>, wanted: usize) -> Outcome<Vec<Machine>> {
    let machines: Vec<Machine> = (0..wanted).map(|_| driver.bench.machine()).collect();
    for answer in all(driver, machines.iter().map(Machine::create)).await? {
        answer.machine()?;
    }
    Ok(machines)
}

/// The answers to many operations, of which as many run at the same time as the driver takes.
pub(super) async fn all(
    driver: &Driver<'_>,
    operations: impl Iterator<Item = Operation>,
) -> Outcome<Vec<Answer>> {
    let operations: Vec<_> = operations.collect();
    let lanes = driver.session.hello.max_in_flight.clamp(1, LANES) as usize;
    let mut answers = Vec::new();
    for some in operations.chunks(lanes) {
        let asked: Vec<Asked<'_>> =
            some.iter().map(|one| driver.start(one.clone())).collect::<Outcome<_>>()?;
        for one in asked {
            answers.push(one.settled().await?);
        }
    }
    Ok(answers)
}

/// Each machine is listed once.
pub(super) fn whole(bench: &Bench, records: &[MachineRecord], machines: &[Machine]) -> Outcome {
    let records: Vec<&MachineRecord> = records.iter().filter(|it| bench.counts(it)).collect();
    let got = uids(records.iter().copied());
    let all = machines.iter().all(|machine| got.contains(&machine.uid));
    ensure(
        all && records.len() == machines.len(),
        format_args!("each of {} machines once", machines.len()),
        format_args!("{} records of {} machines", records.len(), got.len()),
    )
}

pub(super) async fn sent(bench: &Bench) -> Outcome {
    let wanted = bench.options().many;
    let driver = bench.connect().await?;
    let machines = many(&driver, wanted).await?;
    let answer = driver.ask(list(&bench.class(), bench.cluster_id())).await?;
    let records = answer.machines()?;
    whole(bench, &records, &machines)?;
    in_pages(&answer, wanted, |page| page.machines.len())
}

/// A list of so many goes in pages, none of them too large.
pub(super) fn in_pages(
    answer: &Answer,
    wanted: usize,
    count: impl Fn(&OperationPage) -> usize,
) -> Outcome {
    ensure(
        answer.pages.len() > 1,
        format_args!("pages for a list of {wanted}"),
        format_args!("{} pages", answer.pages.len()),
    )?;
    for page in &answer.pages {
        let (records, bytes) = (count(page), page.encoded_len());
        ensure(
            records <= PAGE && bytes <= 256 * 1024,
            "pages of at most 500 records and 256 KiB",
            format_args!("{records} records, {bytes} bytes"),
        )?;
    }
    Ok(())
}
