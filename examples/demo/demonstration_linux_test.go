// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

// plainUser is an id that is not in /etc/subuid.
const plainUser = 54321

func TestDemonstration(t *testing.T) {
	t.Parallel()
	programs := buildPrograms(t)
	t.Run("as who runs the tests", func(t *testing.T) {
		t.Parallel()
		result := demo(t, programs).run(t)
		result.wantsCode(t, exitOK)
		result.wantsGreen(t)
		if os.Geteuid() == 0 && strings.Contains(result.output, "not made") {
			t.Errorf("as root every connection can be made:\n%s", result.output)
		}
		result.wantsRows(t, map[string]int{
			"15001 → 15008 → stock:8080, from 10.244.1.3": 2, "15001 → 15008 → orders:8080, from 10.244.1.4": 1, "15001 → world:80, from 10.244.1.3": 1,
			"15053 → world:53 ": 4, "15006 → stock:8080, from 10.244.1.5": 1, "stock:8080, from 169.254.7.127": 1,
			"stock:8080, from fd16:9254:7127:1337:ffff:ffff:ffff:ffff": 1, "15001 → 15008 → stock:8080, from fd00:10:244:1::3": 2,
			"orders → stock, opened before ": 4, "orders → stock, opened when enrolled ": 2,
		})
		if os.Geteuid() == 0 {
			result.wants(t, tutorialLines(t)...)
		}
	})
	t.Run("a single user id", func(t *testing.T) {
		t.Parallel()
		if os.Geteuid() != 0 {
			return // the tests run as an ordinary user already
		}
		result := demo(t, programs).by(plainUser).run(t)
		result.wantsCode(t, exitOK)
		result.wantsGreen(t)
		result.wants(t, "needs a second uid", "this machine has no second user", "9 not made")
	})
	t.Run("a pod of one's own", func(t *testing.T) {
		t.Parallel()
		result := demo(t, programs).of("testdata/lists.yaml").run(t)
		result.wantsCode(t, exitOK)
		result.wantsGreen(t)
		result.wants(t, "application → included 10.96.0.0/12", "application → included port 443", "world → included port 9000",
			"application → excluded 2001:db8:96:1::/64")
	})
	t.Run("TPROXY", func(t *testing.T) {
		t.Parallel()
		result := demo(t, programs).of("testdata/tproxy.yaml").run(t)
		result.wantsCode(t, exitOK)
		result.wantsGreen(t)
		result.wants(t, "world → application ", "tproxy.capture", "proxy:15006, meant for ", "application → excluded port 3306", "world → excluded port 9100")
		result.lacks(t, "no answer")
	})
	t.Run("a native sidecar that captures DNS", func(t *testing.T) {
		t.Parallel()
		result := demo(t, programs).of("testdata/native.yaml").run(t)
		result.wantsCode(t, exitOK)
		result.wantsGreen(t)
		result.wants(t, "application → a resolver, by UDP", "application → a resolver, by TCP", "proxy:15053")
		result.lacks(t, "no answer")
	})
	t.Run("a pod outside the mesh", func(t *testing.T) {
		t.Parallel()
		result := demo(t, programs).of("testdata/plain.json").run(t)
		result.wantsCode(t, exitOK)
		result.wantsGreen(t)
		result.wants(t, "the pod is left alone: no-proxy")
	})
	t.Run("kept", func(t *testing.T) {
		t.Parallel()
		result := demo(t, programs, "--keep").run(t)
		result.wantsCode(t, exitOK)
		result.wants(t, "Everything is kept in ")
		result.keeps(t, map[string]string{
			"plan": "plan istio-cni\n", "plan.nft": "table inet istio-cni {", "traces": "outbound.capture", "install-cni": "msg=ready",
			"node-ambient": "the rules are written by a dataplane", "stand-in-proxy": `"msg":"pod served"`,
		})
	})
	t.Run("a disagreement", func(t *testing.T) {
		t.Parallel()
		d := demo(t, programs)
		d.program = asDoubter
		result := d.run(t)
		result.wantsCode(t, exitFailure)
		result.wants(t, "DISAGREE", "application → excluded port 3306", "expected refused, by outbound.exclude.ports", "the kernel did: world:3306",
			"orders → a resolver, by UDP (203.0.113.10:53): expected refused, by dns.udp: queries go to the proxy; the kernel did: 15053 → world:53",
			"is as it was, byte for byte", "demo: the logs are in ")
		result.leaves(t, "logs")
	})
	t.Run("a pod that the plugin refuses", func(t *testing.T) {
		t.Parallel()
		result := demo(t, programs).of("testdata/invalid.yaml").run(t)
		result.wantsCode(t, exitFailure)
		result.wants(t, `traffic.sidecar.istio.io/excludeOutboundIPRanges="10.0.0.0/33"`, "demo: the logs are in ")
		result.leaves(t, "logs")
	})
	for _, moment := range []string{"take the binaries", "run install-cni until", "make connections", "remove the label"} {
		t.Run("interrupted at "+moment, func(t *testing.T) {
			t.Parallel()
			result := demo(t, programs).interruptedAt(t, moment)
			result.wantsCode(t, exitFailure)
			result.wants(t, "demo: interrupted")
			result.leaves(t)
		})
	}
}

// tutorialLines returns the lines of the program's output that docs/tutorial.md shows, without
// durations.
func tutorialLines(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile("../../docs/tutorial.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "<!-- of make demo -->\n```text\n")
	block, _, closed := strings.Cut(rest, "```\n")
	if !closed {
		t.Fatal("the tutorial has nothing of the demo")
	}
	var lines []string
	for line := range strings.Lines(block) {
		if line != "...\n" {
			line, _, _ = strings.Cut(strings.TrimSuffix(line, "\n"), " ✓")
			lines = append(lines, line)
		}
	}
	return lines
}

// buildPrograms builds the programs as the demo does, readable by all users.
func buildPrograms(t *testing.T) string {
	t.Helper()
	directory := t.TempDir()
	if err := nodeIn("").build(t.Context(), directory); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{directory, filepath.Dir(directory)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return directory
}

type demoCommand struct {
	program   string
	args      []string
	user      uint32 // 0 keeps the test's user
	pod       string
	directory string // for temporary files
}

func demo(t *testing.T, programs string, args ...string) demoCommand {
	t.Helper()
	directory, err := os.MkdirTemp("", "demo") //nolint:usetesting // t.TempDir has long names, and a socket's path at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(directory) })
	if err := os.Chmod(directory, 0o777); err != nil {
		t.Fatal(err)
	}
	return demoCommand{program: asDemo, args: append(args, "--binaries", programs), directory: directory}
}

func (d demoCommand) by(user uint32) demoCommand { d.user = user; return d }

func (d demoCommand) of(pod string) demoCommand { d.pod = pod; return d }

func (d demoCommand) command(ctx context.Context) *exec.Cmd {
	args := append([]string{d.program}, d.args...)
	command := exec.CommandContext(ctx, "/proc/self/exe", args...)
	command.Env = os.Environ()
	if d.user != 0 {
		command = sandbox.AsOrdinaryUser(ctx, d.user, args...)
	}
	command.Env = append(command.Env, "TMPDIR="+d.directory, "POD="+d.pod)
	return command
}

func (d demoCommand) run(t *testing.T) demoResult {
	t.Helper()
	command := d.command(t.Context())
	output, err := command.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return demoResult{string(output), command.ProcessState.ExitCode(), d.directory}
}

// interruptedAt interrupts the program when it announces the step.
func (d demoCommand) interruptedAt(t *testing.T, moment string) demoResult {
	t.Helper()
	command := d.command(t.Context())
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	command.Stdout, command.Stderr = writer, writer
	if err := errors.Join(command.Start(), writer.Close()); err != nil {
		t.Fatal(err)
	}
	var output strings.Builder
	said := bufio.NewReader(reader)
	for {
		b, err := said.ReadByte()
		if err != nil {
			break // the program and all its children have ended
		}
		output.WriteByte(b)
		if b == moment[len(moment)-1] && strings.HasSuffix(output.String(), moment) {
			if err := command.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = command.Wait() // only the exit code matters
	return demoResult{output.String(), command.ProcessState.ExitCode(), d.directory}
}

type demoResult struct {
	output    string
	code      int
	directory string
}

func (r demoResult) wantsCode(t *testing.T, code int) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d:\n%s", r.code, code, r.output)
	}
}

func (r demoResult) lacks(t *testing.T, text string) {
	t.Helper()
	if strings.Contains(r.output, text) {
		t.Errorf("%q is in:\n%s", text, r.output)
	}
}

func (r demoResult) wants(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(r.output, text) {
			t.Errorf("the output lacks %q:\n%s", text, r.output)
		}
	}
}

// wantsRows checks how often texts appear.
func (r demoResult) wantsRows(t *testing.T, texts map[string]int) {
	t.Helper()
	for text, want := range texts {
		if got := strings.Count(r.output, text); got != want {
			t.Errorf("%q appears %d times, want %d:\n%s", text, got, want, r.output)
		}
	}
}

// wantsGreen checks that every row and every step is good, and that nothing is left over.
func (r demoResult) wantsGreen(t *testing.T) {
	t.Helper()
	r.wants(t, "✓ agree", "our entry is back after ", "is as it was, byte for byte", "✓ Everything was as expected",
		"orders and stock are enrolled after ", "nothing new is captured after ", "no rule is left after ")
	for _, bad := range []string{"✗", "DISAGREE", "NOT"} {
		if strings.Contains(r.output, bad) {
			t.Errorf("the output has %q:\n%s", bad, r.output)
		}
	}
	r.leaves(t)
}

// leaves checks what is left of the program's directory.
func (r demoResult) leaves(t *testing.T, names ...string) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(r.directory, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for i, path := range left {
		left[i] = filepath.Base(path)
	}
	if strings.Join(left, " ") != strings.Join(names, " ") {
		t.Errorf("%q is left, want %q", left, names)
	}
	if entries, err := os.ReadDir(r.directory); err != nil || len(names) == 0 && len(entries) > 0 {
		t.Errorf("%v is left, %v, want nothing", entries, err)
	}
}

// keeps checks that the kept logs have these texts, and that the service account's token appears in
// no log, and not in the output.
func (r demoResult) keeps(t *testing.T, texts map[string]string) {
	t.Helper()
	kept, err := filepath.Glob(filepath.Join(r.directory, "*"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("%q is kept, %v, want one directory", kept, err)
	}
	token, err := os.ReadFile(filepath.Join(kept[0], "serviceaccount", "token"))
	if err != nil || len(token) == 0 {
		t.Fatalf("token %q, %v, want one", token, err)
	}
	if strings.Contains(r.output, string(token)) {
		t.Error("the output has the token")
	}
	logs, err := filepath.Glob(filepath.Join(nodeIn(kept[0]).logs(), "*"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no logs in %s, %v", kept[0], err)
	}
	for _, log := range logs {
		text, err := os.ReadFile(log)
		if err != nil || strings.Contains(string(text), string(token)) {
			t.Errorf("%s has the token, or can't be read: %v", log, err)
		}
		name := filepath.Base(log)
		if !strings.Contains(string(text), texts[name]) {
			t.Errorf("%s lacks %q:\n%s", name, texts[name], text)
		}
		delete(texts, name)
	}
	if len(texts) > 0 {
		t.Errorf("no logs %v in %s", texts, kept[0])
	}
}
