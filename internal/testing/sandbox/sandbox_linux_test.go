// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// Users that exist only for these tests.
const (
	plainUser       = 54321 // no subordinate ids
	subordinateUser = 54322
)

// TestInside checks what every process inside may rely on. It also runs as other users, started by
// the tests below.
func TestInside(t *testing.T) {
	t.Parallel()
	if info := ownInfo(t); !info.Inside {
		t.Fatalf("info is %+v, want inside", info)
	}
	if os.Getuid() != 0 || os.Getgid() != 0 {
		t.Errorf("uid %d, gid %d, want 0, 0", os.Getuid(), os.Getgid())
	}
	second := exec.CommandContext(t.Context(), "true")
	second.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1337, Gid: 1337, NoSetGroups: true}}
	if err := second.Run(); (err != nil) != ownInfo(t).SingleID {
		t.Errorf("a program as user 1337: %v, but SingleID is %t", err, ownInfo(t).SingleID)
	}
	if os.Getpid() == 1 {
		t.Error("the program is process 1 itself, want a process of its own for that")
	}
	if inherited := inheritableCapabilities(t); inherited != "0000000000000000" {
		t.Errorf("inheritable capabilities are %s, want none", inherited)
	}
	for _, name := range []string{"net", "pid", "mnt"} {
		if own, first := namespaceOf(t, "self", name), namespaceOf(t, "1", name); own != first {
			t.Errorf("%s namespace is %s, process 1's is %s", name, own, first)
		}
	}
	loopback, err := net.InterfaceByName("lo")
	if err != nil || loopback.Flags&net.FlagUp == 0 {
		t.Errorf("loopback interface is %+v, %v, want it up", loopback, err)
	}
	if all, err := net.Interfaces(); err != nil || len(all) != 1 {
		t.Errorf("interfaces are %v, %v, want lo alone: the host's must not be here", all, err)
	}
}

func TestInsideMountsAreItsOwn(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), " shared:") {
		t.Errorf("a mount propagates to the host:\n%s", text)
	}
}

func TestOrphansAreReaped(t *testing.T) {
	t.Parallel()
	output, err := exec.CommandContext(t.Context(), "sh", "-c", "true & echo $!").Output()
	if err != nil {
		t.Fatal(err)
	}
	orphan, err := strconv.Atoi(strings.TrimSpace(string(output)))
	if err != nil {
		t.Fatal(err)
	}
	for range time.Tick(time.Millisecond) {
		if err := unix.Kill(orphan, 0); errors.Is(err, unix.ESRCH) {
			return
		}
	}
}

func TestExitCode(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		verb string
		want int
	}{{"exit-7", 7}, {"kill-self", 128 + int(unix.SIGKILL)}} {
		command := start(t, test.verb)
		if output, _ := command.CombinedOutput(); command.ProcessState.ExitCode() != test.want {
			t.Errorf("%s: exit code %d, want %d\n%s", test.verb, command.ProcessState.ExitCode(), test.want, output)
		}
	}
}

func TestMainThreadThatIsTakenIsAnError(t *testing.T) {
	t.Parallel()
	output, err := start(t, "main-thread-taken").CombinedOutput()
	if err == nil || !strings.Contains(string(output), "keeps the main thread") {
		t.Errorf("the program ended with %v and said %s", err, output)
	}
}

func TestSignalsAreHandedOnOnce(t *testing.T) {
	t.Parallel()
	command := start(t, "await-signals")
	command.SysProcAttr.Setpgid = true
	output := startAndAwaitReady(t, command)
	// As a terminal does: to the whole process group.
	for _, s := range []unix.Signal{unix.SIGINT, unix.SIGTERM} {
		if err := unix.Kill(-command.Process.Pid, s); err != nil {
			t.Fatal(err)
		}
		if got, err := output.ReadString('\n'); got != s.String()+"\n" {
			t.Fatalf("the program inside got %q, %v, want %q once", got, err, s)
		}
	}
	if rest, _ := io.ReadAll(output); len(rest) > 0 {
		t.Errorf("then it got %q, want the end", rest)
	}
	if err := command.Wait(); err != nil {
		t.Error(err)
	}
}

func TestAllInsideDieWithTheProcessOutside(t *testing.T) {
	t.Parallel()
	command := start(t, "hang")
	output := startAndAwaitReady(t, command)
	if err := command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// Every process inside holds the other end.
	if _, err := io.Copy(io.Discard, output); err != nil {
		t.Error(err)
	}
	_ = command.Wait()
}

func TestAllInsideDieWithTheContext(t *testing.T) {
	t.Parallel()
	command := start(t, "cancelled")
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output := startAndAwaitReady(t, command)
	if _, err := io.WriteString(input, "\n"); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(output); !strings.Contains(string(rest), "canceled: true") || err != nil {
		t.Errorf("Enter said %q, %v, want the context's error", rest, err)
	}
	_ = command.Wait()
}

func TestOrdinaryUserWithSingleID(t *testing.T) {
	t.Parallel()
	if own := ownInfo(t); own.SingleID {
		if own.Reason == "" {
			t.Errorf("this very run is the case, and its info is %+v, want a reason", own)
		}
		return
	}
	if output, err := asUser(t, plainUser, "-test.run=^TestInside$", "-test.v"); err != nil || !strings.Contains(output, "--- PASS: TestInside (") {
		t.Errorf("%v\n%s", err, output)
	}
	info := infoOf(t, plainUser, "info")
	if !info.SingleID || info.Root || !strings.Contains(info.Reason, "54321") {
		t.Errorf("info is %+v, want a single id, and that the user has no range as reason", info)
	}
}

func TestOrdinaryUserWithSubordinateIDs(t *testing.T) {
	t.Parallel()
	if !ownInfo(t).Root {
		// newuidmap does nothing inside a sandbox; with subordinate ids, this very run is the test.
		return
	}
	giveSubordinateIDs(t)
	if output, err := asUser(t, subordinateUser, "-test.run=^TestInside$", "-test.v"); err != nil || !strings.Contains(output, "--- PASS: TestInside (") {
		t.Errorf("%v\n%s", err, output)
	}
	if diff := cmp.Diff(Info{Inside: true}, infoOf(t, subordinateUser, "info")); diff != "" {
		t.Errorf("info (-want +got):\n%s", diff)
	}
	// With no_new_privs (prctl(2)), newuidmap, which gets its privileges from a set-user-ID bit,
	// does not work.
	info := infoOf(t, subordinateUser, "info-unprivileged")
	if !info.Inside || !info.SingleID || !strings.Contains(info.Reason, "newuidmap") {
		t.Errorf("info where newuidmap fails is %+v, want a single id and newuidmap's own words as reason", info)
	}
}

func TestForbidden(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ verb, want string }{
		{"forbid-net", "user.max_net_namespaces is 0; run: sudo sysctl -w user.max_net_namespaces=10000"},
		{"forbid-user", "user.max_user_namespaces is 0; run: sudo sysctl -w user.max_user_namespaces=10000"},
		{"forbid-by-seccomp", "a seccomp filter, as containers have, forbids new namespaces; run: docker run --privileged IMAGE /proc/self/exe helper exit-7"},
	} {
		command := start(t, test.verb)
		command.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{Size: 1}},
		}
		text, err := command.Output()
		output := string(text)
		if !strings.Contains(output, test.want) || !strings.Contains(output, "forbidden: true") || err == nil {
			t.Errorf("%s: %v\ngot  %s\nwant %s", test.verb, err, output, test.want)
		}
	}
}

// giveSubordinateIDs mounts files with one more user over those that newuidmap reads: in this
// sandbox, not on the host.
func giveSubordinateIDs(t *testing.T) {
	t.Helper()
	for path, line := range map[string]string{
		"/etc/passwd": fmt.Sprintf("meshcni-test:x:%d:%d::/:/bin/false\n", subordinateUser, subordinateUser),
		"/etc/subuid": "meshcni-test:600100000:65536\n",
		"/etc/subgid": "meshcni-test:600100000:65536\n",
	} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		over := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(over, append(text, line...), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount(over, path, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
	}
}

func ownInfo(t *testing.T) Info {
	t.Helper()
	info, err := Enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func infoOf(t *testing.T, uid uint32, verb string) Info {
	t.Helper()
	output, err := asUser(t, uid, "helper", verb)
	var info Info
	if err == nil {
		err = json.Unmarshal([]byte(output), &info)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return info
}

// startAndAwaitReady starts a helper and reads its output up to "ready".
func startAndAwaitReady(t *testing.T, command *exec.Cmd) *bufio.Reader {
	t.Helper()
	pipe, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	output := bufio.NewReader(pipe)
	if line, err := output.ReadString('\n'); line != "ready\n" {
		t.Fatalf("helper said %q, %v, want ready", line, err)
	}
	return output
}

func inheritableCapabilities(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "CapInh:\t")
	inherited, _, _ := strings.Cut(after, "\n")
	return inherited
}

func namespaceOf(t *testing.T, process, name string) string {
	t.Helper()
	link, err := os.Readlink("/proc/" + process + "/ns/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return link
}
