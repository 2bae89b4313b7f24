"""Log texts with which frameworks, launchers, shells and schedulers report the end of a run."""
# Each text reports a success, a death or an order to stop, without a reason. A run is healthy only if a success comes
# after every alarming line that the run did not survive. A success is a line that matches `SUCCESS`, or a line that
# matches `DONE` before a line that matches `LEFT`. If the logs have no alarming line, a match of `LEFT` at the end of
# the logs is enough.

from __future__ import annotations

SUCCESS, DONE, DEATH, ABORT = "end.success", "end.done", "end.death", "end.abort"
TASK_EXIT, EXIT_CODE, STOP_ORDER, RESTART = "end.task_exit", "end.exit_code", "end.stop_order", "end.restart"
TRACEBACK, EXCEPTION, LEFT, READY = "end.traceback", "end.exception", "end.left", "end.ready"
START, TOLD_TO_STOP = "end.start", "end.told_to_stop"

DEATHS = (DEATH, ABORT, TASK_EXIT, EXIT_CODE)  # only a restart goes on after these
ALARMS = (*DEATHS, STOP_ORDER, TRACEBACK)

# Names that do not end as exceptions do.
OTHER_EXCEPTIONS = (
    r"exc\.Unsupported|Stop(?:Async)?Iteration|[a-z]LimitHit|TimeoutExpired|NoSuch(?:Key|Bucket)|MissingMandatoryValue|[a-z]NotFound|"
    r"OutOfResources|VersionConflict|ArrowInvalid"
)
_JOB = r"(?:[Tt]raining|[Jj]ob|[Rr]un|[Ee]xperiment|[Pp]rogram|[Ff]ine-?tuning|[Ww]orkflow|[Bb]enchmark)"

# Of those that begin at one place the first counts. Short: what begins within one that is found is not looked for.
RUN_ENDS: dict[str, str] = {
    # The work is done; what often follows, the last save or an evaluation, may still fail.
    DONE: r"Training completed\. Do not forget|'train_runtime'|last_model_checkpoint: |Finished training\b|"
    r"`Trainer\.fit` stopped: `max_|Outputs? (?:have been|has been|was) saved to|wandb: Run history|Done training\b|"
    r"\[after training is done\]",
    # Printed as a process exits on its own, or by `time` of the shell: it is an end if nothing alarming precedes it.
    LEFT: r"process group has NOT been destroyed before|destroy_process_group\(\) was not called before program exit|"
    r"Application shutdown complete\.|Finished server process \[|^real[ \t]+(?:\d{1,5}m)?\d{1,6}\.\d|"
    r"receive shutdown event and so quit from MasterDaemon|"  # the store of Paddle's rank 0
    r"Shutting down FastAPI HTTP server|Total (?:running|(?:pre-?)?training) time:? {1,3}\d{1,4}:\d\d:\d\d|"
    r"^Successfully completed\.\r?$|^ {1,8}Turnaround time : |"  # LSF's report; a script's last command decides it
    r"^peak memory consumption: \d|^final_\w{1,40} val_loss:",  # modded-nanogpt
    # A launcher or the first rank begins: of whatever fails from here on, no success before is the end.
    START: r":main\] process \d{1,9} spawned|Setting OMP_NUM_THREADS environment variable|"
    r"\[runner\.py:\d{1,5}:main\] cmd = |Starting elastic_operator with|"
    r"Started server process \[|Automatically detected platform",
    # A server got SIGINT or SIGTERM (launcher.py of vLLM): what its engine prints then is no fault.
    TOLD_TO_STOP: r"\[shutdown\] API server: shutdown triggered|Gracefully stopping http server",
    # No error before it ended the start.
    READY: r"Starting vLLM (?:API )?server|Application startup complete\.|The server is fired up and ready to roll",
    SUCCESS: r"\"status\": ?\"success\"|\"name\":\"complete\",\"context\":\{\"status\":0\}|"
    r"# Avg bus bandwidth|# Collective test concluded|ENDING TIMING RUN|"
    rf"{_JOB} (?:run |[Ss]uite )?(?:is |has |was )?(?:been )?"
    r"(?:[Ff]inished|[Cc]ompleted?|succeeded|ended successfully)\b|Total wall time: \d|"
    r"Training (?:done\b|time:? \d{1,4}:\d\d:\d\d|took \d{1,4}:\d\d:\d\d)|[Rr]eturn code[:= ]{1,3}0\b|"
    r"All done|TRAINING COMPLETE|train job success|status ok exit 0|\*{5} train metrics \*{5}|"
    r"exits successfully|worker group successfully finished|condition met: (?:Succeeded|Complete)|"
    r"job\.batch/\S{1,80} +Complete\b|\b0/\d{1,2} +Completed\b|status TERMINATED\b|finished \d{1,6} epochs|"
    r"Job '\S{1,80}' succeeded|Reporting training SUCCESS|Process exited normally|[Pp]hase\"? ?[:=] ?\"?Succeeded|"
    r"[Ee]xit(?:ed)?(?: with)?(?: exit)?(?: code| status)?[:= ]{1,3}0(?::0)?(?: |\.|,|\r?$)|"
    r"[Ss]tate ?[:=] ?COMPLETED|\bCOMPLETED +0:0\b|={3,40} \d{1,6} passed(?:,| in)",
    TASK_EXIT: r"srun: error: [^\n]{1,60}: tasks? [\d,-]{1,60}: Exited with exit code [1-9]\d?\b",
    DEATH: r"ChildFailedError|Test (?:NCCL|CUDA) failure|ProcessExitedException|ProcessRaisedException|"
    r"exits with\b|returned non-zero|"
    r"Primary job +terminated|noticed that process|one or more processes exited with|BAD TERMINATION|"
    r"MPI_ABORT was invoked|MPI_Abort|has lost communication with|FAILED \(non-zero|"
    r"WorkerProc (?:hit an exception|failed to start|initialization failed)|Scheduler hit an exception|"
    r"EngineCore (?:encountered a fatal|failed to start|hit an exception)|EngineDeadError|fatal signal from worker|"
    r"backoff limit|BackoffLimitExceeded|CrashLoopBackOff|replica\(s\) failed|Reason: +Error\b|"
    r"\b0/\d{1,2} +(?:Error|Evicted|NodeLost)\b|Failed with result|Main process exited|srun: error: |"
    r"Node failure on|ExecuteUserScriptError|[Tt]raining job failed|[Ss]tatus:? FAILED|Job '\S{1,80}' failed|"
    r"(?:has failed|is already dead), terminating server|"
    r"gang failed|Trial task failed|make: \*\*\* |[Ff]ailed to start worker|Error executing job with|"
    r"\"status\": ?\"aborted\"|={3,40} \d{1,6} (?:failed|errors?)\b|Terminating process because",
    ABORT: r"(?:exited|crashed) with (?:exit )?code -6|Aborted(?: +\(core dumped\)| {3,40}|\r?$)|"
    r"Signal 6 \(SIGABRT\)|[Ee]xit code (?:-1073740791|3221226505)\b|"  # of Windows
    r"exit code 134|exitcode {0,4}: {0,2}-6|Signals\.SIGABRT|return code = -6|"
    r"Fatal Python error|terminate called|core dumped|Process received signal|KILLED BY SIGNAL|"
    r"exited on signal \d|\bF(?:20\d\d)?\d{4} \d\d:\d\d:\d\d|: F external/|' panicked at |Unhandled exception|"
    r"Assertion [`'\"][^\n]{1,120}[`'\"] failed",
    EXIT_CODE: r"exit_?code {0,4}[:=] {0,2}-?[1-9]|return code = -?[1-9]|"
    r"[Ee]xit(?:ed)?(?: with)?(?: exit)? ?(?:[Cc]ode|status)[ :=]{1,3}(?:of )?-?[1-9]|[Nn]on-zero (?:exit )?status|"
    r"local_rank: \d{1,6} \(pid|errorcode -?[1-9]|\"exitCode\": ?[1-9]|"
    r"terminated with (?:exit code|signal)|died with <",
    STOP_ORDER: r"Sending process \d{1,9} closing|[Rr]eceived \S{1,20} death signal|got signal: \d|"
    r"SIG(?:TERM|QUIT|INT|HUP) received|[Rr]eceived SIG(?:TERM|QUIT|INT)\b|[Rr]eceived sigquit|: Terminated\r?$|"
    r"Force Terminated|srun: Terminating|Job step aborted|[Rr]eceived SIGINT|Detected KeyboardInterrupt|"
    r"Keyboard interruption\. Exiting|"
    r"CANCELLED AT|Terminating all processes|`Termination signal` is detected|"
    r"Killing subprocess",
    RESTART: r"[Rr]estart(?:ing|ed) (?:worker group|trial|workers?|from|training|the (?:job|actor|worker))|"
    r"[Rr]esum(?:ing|ed)(?: training)? from|[Rr]estart attempt|worker group[^\n]{0,40}will restart|Auto-?resum|"
    r"Restor(?:ing|ed all) states from the checkpoint|successfully loaded checkpoint from",
    TRACEBACK: r"Traceback \(most recent call last\)",
    EXCEPTION: rf"(?:[A-Za-z.](?:Error|Exception|Interrupt)|(?:^|[\]:] {{1,3}})Exception|{OTHER_EXCEPTIONS})"
    r"(?:: |\r?$)",
}
