// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"errors"
	"os"
	"strings"
	"testing"
)

const (
	formerKubeconfig = "run/linkmesh-cni-kubeconfig"
	newKubeconfig    = "run2/linkmesh-cni-kubeconfig"
)

func newMovedNode(t *testing.T) *testNode {
	t.Helper()
	n := newTestNode(t)
	n.options.Kubeconfig = n.kubeconfig()
	n.install()
	if !n.has(formerKubeconfig) {
		t.Fatal("no kubeconfig was installed")
	}
	n.options.RunDir = n.in("run2")
	return n
}

// wantFormer checks whether the former kubeconfig exists and is claimed. The new one must exist.
func (n *testNode) wantFormer(when string, there, claimed bool) {
	n.t.Helper()
	claim := n.read("bin/linkmesh-cni.claim")
	if n.has(formerKubeconfig) != there || strings.Contains(claim, n.in(formerKubeconfig)) != claimed || !n.has(newKubeconfig) {
		n.t.Errorf("%s: the former kubeconfig is there: %v, want %v; the new one: %v; the claim is %s",
			when, n.has(formerKubeconfig), there, n.has(newKubeconfig), claim)
	}
}

func TestAFormerKubeconfigGoes(t *testing.T) {
	t.Parallel()
	n := newMovedNode(t)
	n.write("run/linkmesh-cni-kubeconfig.tmp.0123456789abcdef", "half, with a token")
	n.install()
	n.wantFormer("installed again", false, false)
	n.options.RunDir = n.in("run")
	n.install()
	if n.has(newKubeconfig) || !n.has(formerKubeconfig) {
		t.Error("the way back: the kubeconfigs are wrong")
	}
}

// TestAFormerKubeconfigStays as long as a configuration may name it.
func TestAFormerKubeconfigStays(t *testing.T) {
	t.Parallel()
	n := newMovedNode(t)
	list := n.read("net.d/10-net.conflist")
	if err := os.Remove(n.in("net.d/10-net.conflist")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := n.installer().Install(t.Context()); !errors.Is(err, ErrWaiting) {
			t.Fatalf("install without a network: %v", err)
		}
		n.wantFormer("without a network", true, true)
	}
	n.write("net.d/10-net.conflist", list)
	n.install()
	n.wantFormer("with one", false, false)
}

// TestAFormerKubeconfigIsRemembered while its directory is not mounted.
func TestAFormerKubeconfigIsRemembered(t *testing.T) {
	t.Parallel()
	n := newMovedNode(t)
	if err := os.Rename(n.in("run"), n.in("elsewhere")); err != nil {
		t.Fatal(err)
	}
	n.install()
	n.wantFormer("not mounted", false, true)
	if err := os.Rename(n.in("elsewhere"), n.in("run")); err != nil {
		t.Fatal(err)
	}
	removals, err := n.installer().InspectRemoval(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	told := false
	for _, removal := range removals {
		told = told || removal.Path == n.in(formerKubeconfig)
	}
	if !told {
		t.Errorf("what an uninstall would do leaves it out: %v", removals)
	}
	n.uninstall()
	if n.has(formerKubeconfig) || n.has(newKubeconfig) {
		t.Error("a kubeconfig is left")
	}
}

// TestAFormerKubeconfigThatCannotBeRemoved checks that it is reported once, and prevents nothing.
func TestAFormerKubeconfigThatCannotBeRemoved(t *testing.T) {
	t.Parallel()
	n := newMovedNode(t)
	if err := errors.Join(os.Remove(n.in(formerKubeconfig)), os.Mkdir(n.in(formerKubeconfig), 0o700)); err != nil {
		t.Fatal(err)
	}
	n.install() // looks twice
	n.wantFormer("a directory in its place", true, true)
	if times := n.saidTimes("a former kubeconfig, with a token in it, can't be removed"); times != 1 {
		t.Errorf("told %d times: %q", times, n.said)
	}
}
