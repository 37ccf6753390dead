"""Goal    the fixtures that all tests here rely on do what they say, failures included.
Method  a daemon that serves and one that cannot start; ranks that end well, fail, and never end."""

import os
import threading

import pytest

from conftest import Daemon, run_threads


def test_a_daemon_serves_and_is_told_apart(daemon):
    assert os.environ["CCO_SOCKET"] == daemon.socket
    daemon.expect_nothing_left()


def test_a_daemon_that_does_not_start_says_why():
    with pytest.raises(AssertionError, match="no_such_field"):
        Daemon(config="no_such_field: 1")


def test_threads_give_their_results_in_order():
    assert run_threads(3, lambda rank: rank * 10) == [0, 10, 20]


def test_a_failing_thread_fails_the_test():
    def body(rank):
        assert rank != 1, "rank 1 fails"

    with pytest.raises(AssertionError, match="rank 1 fails"):
        run_threads(2, body)


def test_a_thread_that_never_ends_is_named():
    end = threading.Event()
    with pytest.raises(AssertionError, match="rank 1"):
        run_threads(2, lambda rank: end.wait() if rank == 1 else None, timeout_s=0.2)
    end.set()


def test_processes_are_ranks(processes):
    script = "import os\nprint(os.environ['CCO_RANK'], os.environ['CCO_SIZE'])"
    assert [one.out for one in processes(2, script)] == ["0 2\n", "1 2\n"]


def test_a_failing_process_fails_the_test(processes):
    with pytest.raises(AssertionError, match="no good"):
        processes(1, "import sys\nsys.exit('no good')")
