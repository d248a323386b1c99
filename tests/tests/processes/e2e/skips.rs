//! A test that does not run says so, also to a reader who sees only what cargo shows of tests that
//! pass.

use std::process::Command;

#[test]
fn what_cannot_run_against_a_cluster_of_somebody_else_says_skipped() {
    let tests = ["e2e::crash::the_api_server_is_killed", "e2e::backup::"];
    for threads in ["1", "2"] {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(tests)
            .args(["--test-threads", threads])
            .env("OSTLER_TEST_KUBECONFIG", "/nowhere")
            .env("OSTLER_TEST_REQUIRE", "all")
            .output()
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && said.contains("test result: ok. 2 passed"), "{said}");
        assert_eq!(said.matches("skipped: ").count(), 2, "{said}");
    }
}
