use super::*;

const SECOND: Duration = Duration::from_secs(1);

struct Bench {
    schedule: Schedule<&'static str>,
    now: Instant,
}

impl Bench {
    fn new() -> Self {
        let backoff = Backoff { base: SECOND, cap: 8 * SECOND };
        Self { schedule: Schedule::new(backoff), now: Instant::now() }
    }

    fn add(&mut self, key: &'static str, priority: Priority) {
        self.schedule.add(key, priority, self.now);
    }

    fn after(&mut self, key: &'static str, seconds: u32) {
        self.schedule.add_after(&key, SECOND * seconds, self.now);
    }

    fn pass(&mut self, seconds: u32) {
        self.now += SECOND * seconds;
        self.schedule.release_due(self.now);
    }

    fn pop(&mut self) -> Option<&'static str> {
        self.schedule.release_due(self.now);
        self.schedule.pop(self.now).map(|ready| ready.key)
    }

    fn finish(&mut self, key: &'static str, outcome: Outcome) {
        self.schedule.finish(&key, outcome, self.now);
    }

    fn due_in(&self) -> Option<u64> {
        self.schedule.next_due().map(|at| at.duration_since(self.now).as_secs())
    }
}

#[test]
fn keys_come_out_in_the_order_they_went_in_and_once() {
    let mut bench = Bench::new();
    for key in ["a", "b", "a", "c", "b"] {
        bench.add(key, Priority::Change);
    }
    assert_eq!([bench.pop(), bench.pop(), bench.pop()], [Some("a"), Some("b"), Some("c")]);
    assert_eq!(bench.pop(), None);
}

#[test]
fn a_change_overtakes_background_keys_and_promotes_its_own() {
    let mut bench = Bench::new();
    bench.add("resync", Priority::Background);
    bench.add("edited", Priority::Background);
    bench.add("edited", Priority::Change);
    assert_eq!(bench.pop(), Some("edited"));
    assert_eq!(bench.pop(), Some("resync"));
    assert_eq!(bench.pop(), None, "its position in the background priority is gone");
}

#[test]
fn a_stream_of_changes_does_not_starve_the_background() {
    let mut bench = Bench::new();
    bench.add("background", Priority::Background);
    let mut before = 0;
    loop {
        bench.add("change", Priority::Change);
        let Some(key) = bench.pop() else { unreachable!("two keys wait") };
        bench.finish(key, Outcome::Done);
        if key == "background" {
            break;
        }
        before += 1;
    }
    assert_eq!(before, CHANGES_PER_BACKGROUND);
}

#[test]
fn a_key_is_with_one_worker_at_a_time_and_runs_again_if_something_happened() {
    let mut bench = Bench::new();
    bench.add("a", Priority::Change);
    assert_eq!(bench.pop(), Some("a"));
    bench.add("a", Priority::Change);
    assert_eq!(bench.pop(), None);
    bench.finish("a", Outcome::Done);
    assert_eq!(bench.pop(), Some("a"));
    bench.finish("a", Outcome::Done);
    assert_eq!(bench.pop(), None);
}

#[test]
fn events_neither_bypass_nor_lengthen_a_backoff() {
    let mut bench = Bench::new();
    bench.add("a", Priority::Change);
    bench.pop();
    bench.finish("a", Outcome::Failed);
    for _ in 0..5 {
        bench.add("a", Priority::Change);
        assert_eq!(bench.pop(), None);
    }
    assert_eq!(bench.due_in(), Some(1));
    bench.pass(1);
    assert_eq!(bench.pop(), Some("a"));
    bench.finish("a", Outcome::Failed);
    assert_eq!(bench.due_in(), Some(2), "one failure more, whatever number of events");
}

#[test]
fn an_event_while_the_failing_worker_ran_waits_for_the_backoff_too() {
    let mut bench = Bench::new();
    bench.add("a", Priority::Change);
    bench.pop();
    bench.add("a", Priority::Change);
    bench.finish("a", Outcome::Failed);
    assert_eq!(bench.pop(), None);
    bench.pass(1);
    assert_eq!(bench.pop(), Some("a"));
}

#[test]
fn an_event_while_an_outdated_plan_was_carried_out_is_planned_for_immediately_but_not_twice() {
    let mut bench = Bench::new();
    bench.add("a", Priority::Change);
    bench.pop();
    bench.finish("a", Outcome::Outdated);
    assert_eq!(bench.due_in(), Some(1), "nothing came: the event is late");
    bench.pass(1);
    bench.pop();
    bench.finish("a", Outcome::Done);
    bench.add("a", Priority::Change);
    bench.pop();
    for popped in [Some("a"), None] {
        bench.add("a", Priority::Change);
        bench.finish("a", Outcome::Outdated);
        assert_eq!(bench.pop(), popped);
    }
    assert_eq!(bench.due_in(), Some(2));
}

#[test]
fn success_resets_the_backoff() {
    let mut bench = Bench::new();
    for delay in [1, 2, 4] {
        bench.add("a", Priority::Change);
        bench.pop();
        bench.finish("a", Outcome::Failed);
        assert_eq!(bench.due_in(), Some(delay));
        bench.pass(8);
    }
    assert_eq!(bench.pop(), Some("a"));
    bench.finish("a", Outcome::Done);
    bench.add("a", Priority::Change);
    bench.pop();
    bench.finish("a", Outcome::Failed);
    assert_eq!(bench.due_in(), Some(1));
}

#[test]
fn the_earliest_of_several_delays_wins() {
    let mut bench = Bench::new();
    bench.after("a", 10);
    bench.after("a", 3);
    bench.after("a", 7);
    assert_eq!(bench.due_in(), Some(3));
    bench.pass(3);
    assert_eq!(bench.pop(), Some("a"));
    bench.finish("a", Outcome::Done);
    assert_eq!(bench.due_in(), None, "the later ones are forgotten");
}

#[test]
fn a_worker_that_requeues_its_key_gets_it_later_unless_an_event_comes_first() {
    let mut bench = Bench::new();
    bench.add("a", Priority::Change);
    bench.pop();
    bench.after("a", 2);
    bench.finish("a", Outcome::Again(5 * SECOND));
    assert_eq!(bench.due_in(), Some(2));
}

#[test]
fn an_event_ends_a_wait_immediately_and_drops_the_timer() {
    let mut bench = Bench::new();
    bench.after("a", 60);
    bench.add("a", Priority::Change);
    assert_eq!(bench.pop(), Some("a"));
    assert_eq!(bench.due_in(), None);
}

#[test]
fn a_timer_that_runs_out_while_the_key_runs_makes_it_run_again() {
    let mut bench = Bench::new();
    bench.add("a", Priority::Change);
    bench.pop();
    bench.after("a", 1);
    bench.pass(2);
    assert_eq!(bench.pop(), None);
    bench.finish("a", Outcome::Done);
    assert_eq!(bench.pop(), Some("a"));
}

#[test]
fn a_settled_key_leaves_nothing_behind() {
    let mut bench = Bench::new();
    bench.add("a", Priority::Change);
    bench.after("a", 5);
    bench.pop();
    bench.finish("a", Outcome::Failed);
    bench.pass(1);
    bench.pop();
    bench.finish("a", Outcome::Done);
    assert_eq!(bench.schedule.remembered(), 0);
    assert_eq!(bench.schedule.depth(), 0);
    assert_eq!(bench.due_in(), None);
}

#[test]
fn the_wait_in_a_priority_is_counted_from_the_first_event() {
    let mut bench = Bench::new();
    bench.add("a", Priority::Background);
    bench.now += SECOND;
    bench.add("a", Priority::Change);
    bench.now += SECOND;
    let ready = bench.schedule.pop(bench.now).unwrap();
    assert_eq!(ready.waited, 2 * SECOND);
}
