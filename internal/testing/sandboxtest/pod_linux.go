// SPDX-License-Identifier: Apache-2.0

package sandboxtest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/namespace"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

// Pod is a fresh network namespace, as a dataplane and as programs see it.
type Pod struct {
	*interception.Netns
	Namespace *sandbox.Namespace
}

// NewPod creates a namespace that is removed when the test ends.
func NewPod(t testing.TB) *Pod {
	t.Helper()
	namespace, err := sandbox.NewNamespace(filepath.Join(t.TempDir(), "netns"))
	if err != nil {
		t.Fatalf("%v; does TestMain call dataplanetest.RunTests?", err)
	}
	t.Cleanup(func() {
		if err := namespace.Close(); err != nil {
			t.Error(err)
		}
	})
	ns, err := interception.OpenNetns(namespace.Path(), interception.NetnsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() }) // the test may have closed it
	return &Pod{ns, namespace}
}

// Run runs a program in the namespace, with the given input, and returns its output. A program that
// fails ends the test.
func (p *Pod) Run(t testing.TB, input string, args ...string) string {
	t.Helper()
	return Run(t, p.Namespace.File(), input, args...)
}

// Run is [Pod.Run] in any network namespace that is open.
func Run(t testing.TB, in *os.File, input string, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if err := namespace.Run(in, func() error {
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errs
		// The machine has one lock for iptables-legacy, but the namespaces share nothing.
		cmd.Env = append(cmd.Environ(), "XTABLES_LOCKFILE="+filepath.Join(t.TempDir(), "xtables.lock"))
		return cmd.Run()
	}); err != nil {
		t.Fatalf("%s: %v\n%s\n%s(the programs ip and nft have to be installed: apt-get install iproute2 nftables)",
			strings.Join(args, " "), err, errs.String(), input)
	}
	return out.String()
}
