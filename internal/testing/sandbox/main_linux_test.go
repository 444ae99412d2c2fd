// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMain runs the tests inside a sandbox or, called as "helper VERB", is a program that enters a
// sandbox of its own.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "helper" {
		os.Exit(helper(os.Args[2]))
	}
	os.Exit(RunTests(m))
}

// helper is a program like demo: it enters a sandbox, and does something small there.
func helper(verb string) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if verb == "cancelled" && os.Getpid() != 1 && os.Getppid() != 1 {
		go func() {
			_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
			cancel()
		}()
	}
	if verb == "info-unprivileged" {
		runtime.LockOSThread()
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			fmt.Println(err)
			return 98
		}
	}
	if verb == "main-thread-taken" && !keepMainThread() {
		fmt.Println("the search for the main thread ended without it")
		return 98
	}
	info, err := Enter(ctx)
	if err != nil {
		fmt.Println(err, "canceled:", errors.Is(err, context.Canceled), "forbidden:", errors.As(err, new(*ForbiddenError)))
		return 99
	}
	if !info.Inside {
		return info.ExitCode
	}
	switch verb {
	case "info", "info-unprivileged":
		err = json.NewEncoder(os.Stdout).Encode(info)
	case "exit-7":
		return 7
	case "kill-self":
		err = unix.Kill(os.Getpid(), unix.SIGKILL)
	case "await-signals":
		awaitSignals()
	case "hang", "cancelled":
		err = hang()
	case "forbid-net":
		err = forbid("max_net_namespaces", false)
	case "forbid-user":
		err = forbid("max_user_namespaces", true)
	case "forbid-by-seccomp":
		err = forbidBySeccomp()
	}
	if err != nil {
		fmt.Println(err)
		return 98
	}
	return 0
}

// keepMainThread has a goroutine keep the main thread. It searches for that thread, because the
// runtime binds main's goroutine to it only while packages are initialised.
func keepMainThread() bool {
	held := make(chan bool)
	go holdMainThread(held, mostHeldThreads)
	return <-held
}

// awaitSignals prints every signal it gets until the second kind of them.
func awaitSignals() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM)
	fmt.Println("ready")
	for s := range signals {
		fmt.Println(s)
		if s == unix.SIGTERM {
			return
		}
	}
}

// hang leaves an orphan that holds standard output open for ever, and holds it open itself.
func hang() error {
	for range 2 {
		orphan := exec.Command("/proc/self/exe", "-test.run=^TestHangs$")
		orphan.Env = append(os.Environ(), "MESHCNI_TEST_HANG=1")
		orphan.Stdout = os.Stdout
		if err := orphan.Start(); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	select {}
}

func TestHangs(t *testing.T) {
	t.Parallel()
	if os.Getenv("MESHCNI_TEST_HANG") != "" {
		<-t.Context().Done()
	}
}

// forbid lowers a limit of this user namespace to 0, and starts a program that enters a sandbox.
func forbid(limit string, unprivileged bool) error {
	if ids, err := os.ReadFile("/proc/self/uid_map"); err != nil || strings.Join(strings.Fields(string(ids)), " ") != "0 0 1" {
		return fmt.Errorf("not in a user namespace of its own, but one of %q, %w: this would change the host", ids, err)
	}
	if err := os.WriteFile("/proc/sys/user/"+limit, []byte("0"), 0); err != nil {
		return err
	}
	runtime.LockOSThread()
	if unprivileged {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_ADMIN, 0, 0, 0); err != nil {
			return err
		}
	}
	return runNested()
}

// forbidBySeccomp starts a program under a filter like that of containers.
func forbidBySeccomp() error {
	runtime.LockOSThread()
	if err := denyNewNamespaces(); err != nil {
		return err
	}
	return runNested()
}

func runNested() error {
	nested := exec.Command("/proc/self/exe", "helper", "exit-7")
	nested.Env = append(environment(), "GORACE=atexit_sleep_ms=0")
	nested.Stdout = os.Stdout
	return nested.Run()
}

// denyNewNamespaces makes clone(2) with CLONE_NEWNET fail with EPERM on this thread and in its
// child processes.
func denyNewNamespaces() error {
	const number, firstArgument = 0, 16 // offsets in struct seccomp_data
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: number},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_CLONE, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: firstArgument},
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: unix.CLONE_NEWNET, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return installFilter(filter)
}

// asUser runs this program as an ordinary user and returns what it printed.
func asUser(t *testing.T, uid uint32, args ...string) (string, error) {
	t.Helper()
	command := AsOrdinaryUser(t.Context(), uid, args...)
	command.Env = append(command.Env, "GORACE=atexit_sleep_ms=0")
	output, err := command.Output()
	return string(output), err
}

// start runs a helper outside of this sandbox, so that it enters one of its own.
func start(t *testing.T, verb string) *exec.Cmd {
	t.Helper()
	command := exec.CommandContext(t.Context(), "/proc/self/exe", "helper", verb)
	command.Env = append(environment(), "GORACE=atexit_sleep_ms=0")
	command.SysProcAttr = &syscall.SysProcAttr{}
	return command
}
