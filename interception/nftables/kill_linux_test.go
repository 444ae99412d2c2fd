// SPDX-License-Identifier: Apache-2.0

package nftables_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/internal/kernel"
	"github.com/meshcni/meshcni/internal/testing/kerneltest"
)

// These are the first argument of the process that is killed, which is this test's program. The
// next ones are the namespace, the file with the plan, the edit or the work on a host, and the
// index of the call to the kernel before which the process kills itself, or -1.
const (
	victimArgument = "apply-until-killed"
	editorArgument = "edit-until-killed"
	hostArgument   = "work-on-host-until-killed"
)

// victimWork returns what a process does until it is killed.
func victimWork(argument, file string) (func(*nftables.Dataplane, *interception.Netns) error, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	switch argument {
	case editorArgument:
		var edit interception.SetEdit
		err := json.Unmarshal(text, &edit)
		return func(dp *nftables.Dataplane, ns *interception.Netns) error {
			return dp.UpdateSet(context.Background(), ns, "mesh-test", "pods", edit)
		}, err
	case hostArgument:
		var work hostWork
		err := json.Unmarshal(text, &work)
		return work.do, err
	}
	var plan interception.Plan
	err = json.Unmarshal(text, &plan)
	return func(dp *nftables.Dataplane, ns *interception.Netns) error {
		return dp.Apply(context.Background(), ns, &plan)
	}, err
}

// beVictim applies or removes a plan or edits a set when it gets a byte of input.
func beVictim(argument, path, file, call string) error {
	work, err := victimWork(argument, file)
	if err != nil {
		return err
	}
	ns, err := interception.OpenNetns(path, interception.NetnsOptions{})
	if err != nil {
		return err
	}
	end, err := strconv.Atoi(call)
	if err != nil {
		return err
	}
	dp, err := nftables.New(nftables.Options{})
	if err != nil {
		return err
	}
	calls := 0
	dp = dp.Through(func(in *os.File) kernel.Namespace {
		return kerneltest.Interfere(kernel.Of(in), func(_ kerneltest.Call, do func() error) error {
			if calls == end {
				return errors.Join(unix.Kill(os.Getpid(), unix.SIGKILL), errors.New("still alive"))
			}
			calls++
			return do()
		})
	})
	if _, err := os.Stdout.WriteString("ready\n"); err != nil {
		return err
	}
	if _, err := io.ReadFull(os.Stdin, make([]byte, 1)); err != nil {
		return err
	}
	if err := work(dp, ns); err != nil {
		return err
	}
	_, err = os.Stdout.WriteString("done\n")
	return err
}

type victim struct {
	*exec.Cmd
	start io.WriteCloser
	says  *bufio.Reader
}

// newVictim starts a victim, and waits until it is ready.
func newVictim(t testing.TB, ns *pod, argument, file string, end int) *victim {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", argument, ns.Namespace.Path(), file, strconv.Itoa(end))
	cmd.Stderr = os.Stderr
	start, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	v := &victim{cmd, start, bufio.NewReader(out)}
	if line, err := v.says.ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("the process says %q, %v", line, err)
	}
	return v
}

// killed lets the victim go on, kills it after a while unless that is negative, and reports whether
// the kill came before its end.
func (v *victim) killed(t testing.TB, after time.Duration) bool {
	t.Helper()
	if _, err := v.start.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	if after >= 0 {
		timer := time.NewTimer(after)
		<-timer.C
		_ = v.Process.Kill()
	}
	_, said := v.says.ReadString('\n')
	err := v.Wait()
	var exit *exec.ExitError
	if said != nil && (!errors.As(err, &exit) || exit.ExitCode() != -1) { // -1 means a signal
		t.Fatalf("the process ends in another way: %v, %v", said, err)
	}
	return said != nil
}

// transparent is a sidecar's plan with every kind of object, and numbers that differ between plans.
func transparent(t testing.TB, number uint32, redirected ...string) *interception.Plan {
	t.Helper()
	redirect, _, err := sidecar.Istio().Parse(interception.Pod{
		Annotations: map[string]string{"sidecar.istio.io/interceptionMode": "TPROXY"},
	})
	if err != nil {
		t.Fatal(err)
	}
	redirect.TProxy.Mark, redirect.TProxy.SelfMark = interception.Mark(number), interception.Mark(number+100)
	redirect.TProxy.Table, redirect.TProxy.Priority = interception.RoutingTable(number), number
	redirect.Outbound.Include = prefixes(redirected...)
	plan, err := sidecar.Plan(redirect, interception.Facts{IPv6: true}, "mesh-test")
	if err != nil {
		t.Fatal(err)
	}
	plan.Objects = append(plan.Objects, interception.Sysctl{
		ID: "a.sysctl", Key: "ipv4/ip_default_ttl", Value: int(number % 100), Why: "a sysctl",
	})
	return plan
}

// killing is a namespace in which processes are killed while they go from one plan to another.
type killing struct {
	*pod
	old, plan   *interception.Plan
	file        string    // of the plan
	rules       [2]string // of either plan alone
	listings    [2]string
	connections net.Listener
	stood       [2]int // how often either plan was in place after a kill
}

func newKilling(t testing.TB) *killing {
	t.Helper()
	k := &killing{
		pod: newForeignPod(t), old: transparent(t, 1337, "192.0.2.0/24"), plan: transparent(t, 1350, "192.0.2.0/25", "10.0.0.0/8"),
		file: filepath.Join(t.TempDir(), "plan.json"),
	}
	text, err := json.Marshal(k.plan)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(k.file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	k.ip(t, "address", "add", "10.1.0.50/24", "dev", "mesh0")
	k.ip(t, "route", "add", "192.0.2.0/24", "dev", "mesh0")
	for i, plan := range []*interception.Plan{k.plan, k.old} {
		k.apply(t, plan)
		k.rules[i], k.listings[i] = k.pod.rules(t), k.everything(t)
	}
	if err := k.Namespace.Do(func() (err error) {
		k.connections, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "0.0.0.0:15001")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.connections.Close() })
	return k
}

// check holds wherever a process was killed: the rules of one plan are in place, with all that they
// need; what both plans capture is captured; other programs' objects exist; and the next Apply
// brings the plan, as if nothing had happened. Then check applies the old plan again.
func (k *killing) check(t testing.TB, where string) {
	t.Helper()
	rules, listing := k.pod.rules(t), k.everything(t)
	at := slices.Index(k.rules[:], rules)
	if at < 0 {
		t.Errorf("%s: rules of neither plan:\n%s", where, rules)
	} else {
		k.stood[at]++
		network, _, _ := strings.Cut(k.listings[at], "ip_default_ttl")
		for line := range strings.Lines(network) {
			if !strings.Contains(listing, line) {
				t.Errorf("%s: %q is not there", where, line)
			}
		}
	}
	k.connect(t, where)
	for _, i := range []int{0, 1} {
		k.apply(t, []*interception.Plan{k.plan, k.old}[i])
		if diff := cmp.Diff(k.listings[i], k.everything(t)); diff != "" {
			t.Errorf("%s: Apply does not heal (-want +got):\n%s", where, diff)
		}
	}
}

func (k *killing) connect(t testing.TB, where string) {
	t.Helper()
	if err := k.Namespace.Do(func() error {
		c, err := (&net.Dialer{Timeout: time.Minute}).DialContext(t.Context(), "tcp4", "192.0.2.1:80")
		if err != nil {
			return err
		}
		return c.Close()
	}); err != nil {
		t.Errorf("%s: a connection that both plans capture: %v", where, err)
		return
	}
	accepted, err := k.connections.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = accepted.Close()
}

// TestKilledAtRandom kills processes at fifty instants, spread over the time that an Apply takes.
func TestKilledAtRandom(t *testing.T) {
	t.Parallel()
	const kills, most = 50, 1000
	k := newKilling(t)
	took := k.duration(t)
	random := rand.New(rand.NewPCG(1, 2))
	killed, tries := 0, 0
	for killed < kills && tries < most {
		tries++
		after := time.Duration(random.Int64N(int64(took)))
		if !newVictim(t, k.pod, victimArgument, k.file, -1).killed(t, after) { // it was quicker this time
			k.apply(t, k.old)
			continue
		}
		killed++
		k.check(t, fmt.Sprintf("kill %d, after %v of %v", killed, after, took))
	}
	if killed < kills {
		t.Errorf("of %d processes, %d were killed before their end", tries, killed)
	}
	t.Logf("an Apply takes %v; the old plan stood %d times, the new one %d times", took, k.stood[1], k.stood[0])
}

// duration returns how long an Apply takes, at best.
func (k *killing) duration(t testing.TB) time.Duration {
	t.Helper()
	shortest := time.Hour
	for range 5 {
		v := newVictim(t, k.pod, victimArgument, k.file, -1)
		began := time.Now()
		if _, err := v.start.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		if line, err := v.says.ReadString('\n'); err != nil || line != "done\n" {
			t.Fatalf("the process says %q, %v", line, err)
		}
		shortest = min(shortest, time.Since(began))
		if err := v.Wait(); err != nil {
			t.Fatal(err)
		}
		k.apply(t, k.old)
	}
	return shortest
}

// TestKilledAtEachCall kills a process before each call to the kernel that changes anything.
func TestKilledAtEachCall(t *testing.T) {
	t.Parallel()
	k := newKilling(t)
	var smooth kerneltest.Fault
	if err := dataplane(t).Through(smooth.Open).Apply(t.Context(), k.Netns, k.plan); err != nil {
		t.Fatal(err)
	}
	k.apply(t, k.old)
	for end, call := range smooth.Calls() {
		if !call.Changes() {
			continue
		}
		if !newVictim(t, k.pod, victimArgument, k.file, end).killed(t, -1) {
			t.Errorf("call %d: the process was not killed", end)
		}
		k.check(t, fmt.Sprintf("call %d (%s)", end, call.What))
	}
}
