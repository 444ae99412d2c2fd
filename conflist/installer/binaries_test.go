// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// TestTwoSourcesOfOneBinary has two files that would overwrite each other at every look.
func TestTwoSourcesOfOneBinary(t *testing.T) {
	t.Parallel()
	n := newTestNode(t)
	n.options.Builds = []string{"linkmesh-cni-nft", "linkmesh-cni-ipt"}
	n.write("source/linkmesh-cni-nft", "with nftables")
	n.write("source/linkmesh-cni-ipt", "with iptables")
	_, err := n.installer().binaries().Ensure(t.Context())
	var option *OptionError
	if !errors.As(err, &option) || option.Option != "SourceDir" || !strings.Contains(err.Error(), "linkmesh-cni and linkmesh-cni-nft") ||
		n.has("bin/linkmesh-cni") {
		t.Errorf("error %v", err)
	}
	if err := os.Remove(n.in("source/linkmesh-cni")); err != nil {
		t.Fatal(err)
	}
	n.install()
	if got := n.read("bin/linkmesh-cni"); got != "with nftables" {
		t.Errorf("the plugin is %q", got)
	}
}

// TestSourcesNamedAsRecords checks that such files are not installed over the records.
func TestSourcesNamedAsRecords(t *testing.T) {
	t.Parallel()
	n := newTestNode(t)
	n.options.ClaimName = "record"
	names := []string{"record", "linkmesh-cni.uninstalled", "linkmesh-cni.lock"}
	for _, name := range names {
		n.write("source/"+name, "a source")
	}
	n.write("source/linkmesh-cni.claim", "a file as any other")
	n.install()
	for _, name := range names {
		if n.has("bin/"+name) && n.read("bin/"+name) == "a source" {
			t.Errorf("%s was installed", name)
		}
	}
	if !n.has("bin/linkmesh-cni") || !n.has("bin/linkmesh-cni.claim") {
		t.Error("what has other names was not installed")
	}
}

// TestAChangeOfTheInstalledBuildConcerns the part, although no source has the name TYPE.
func TestAChangeOfTheInstalledBuildConcerns(t *testing.T) {
	t.Parallel()
	n := newTestNode(t)
	n.options.Builds = []string{"linkmesh-cni-nft"}
	if err := os.Rename(n.in("source/linkmesh-cni"), n.in("source/linkmesh-cni-nft")); err != nil {
		t.Fatal(err)
	}
	part := n.installer().binaries()
	for name, want := range map[string]bool{"bin/linkmesh-cni": true, "bin/linkmesh-cni-nft": false, "bin/bridge": false} {
		if part.Concerns(n.in(name)) != want {
			t.Errorf("%s concerns the part: %v, want %v", name, !want, want)
		}
	}
}
