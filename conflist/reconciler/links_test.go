// SPDX-License-Identifier: Apache-2.0

package reconciler_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/conflist/reconciler"
	"github.com/meshcni/meshcni/internal/filesystem"
)

// newLinkedNode returns a node whose primary configuration is a link to v1/net, with v2/net beside
// it.
func newLinkedNode(t *testing.T, mode reconciler.Mode) *node {
	t.Helper()
	n := newNode(t, mode)
	shape{files: []string{
		"10-calico.conflist", "->v1/net", "v1/", "", "v1/net", calicoList, "v2/", "", "v2/net", strings.Replace(calicoList, "true", "false", 1),
	}}.lay(t, n.directory)
	return n
}

// lead redirects a link atomically.
func (n *node) lead(link, target string) {
	n.t.Helper()
	if err := os.Symlink(target, filepath.Join(n.directory, "new")); err != nil {
		n.t.Fatal(err)
	}
	n.rename("new", link)
}

// wantEntryIn checks which of the node's files have the plugin's entry, links aside.
func (n *node) wantEntryIn(files ...string) {
	n.t.Helper()
	var have []string
	for name, shown := range dump(n.t, n.directory) {
		if strings.Contains(shown, `"mesh-cni"`) {
			have = append(have, name)
		}
	}
	if diff := cmp.Diff(files, have); diff != "" {
		n.t.Errorf("files with the entry (-want +got):\n%s", diff)
	}
}

// TestWithoutAModeALinkIsNotWrittenThrough checks that the link's target, which belongs to another
// program, stays, and that a file of our own is used.
func TestWithoutAModeALinkIsNotWrittenThrough(t *testing.T) {
	t.Parallel()
	for runtime, file := range map[string]string{
		"containerd://2.1.4": "k8s-pod-network/99-mesh-cni.conf", "containerd://1.7.2": "00-mesh-cni.conflist", "": "00-mesh-cni.conflist",
	} {
		n := newLinkedNode(t, "")
		n.options.Want.Runtime = runtime
		before := dump(t, n.directory)
		n.install()
		n.wantEntryIn(file)
		installed := dump(t, n.directory)
		n.install()
		n.want("after a restart", installed)
		n.rename("10-calico.conflist", "away") // its agent is about to recreate it
		if plan, err := n.reconciler().Install(t.Context()); !errors.Is(err, reconciler.ErrWaiting) {
			t.Errorf("without a primary: %v\n%v", err, plan)
		}
		n.wantEntryIn(file)
		n.rename("away", "10-calico.conflist")
		n.unlink("../mesh-cni.claim")
		n.install()
		n.want("after the claim's loss", installed)
		n.unlink("10-calico.conflist")
		n.write("10-calico.conflist", calicoList, 0o640)
		n.install() // no longer a link
		n.wantEntryIn("10-calico.conflist")
		n.lead("10-calico.conflist", "v1/net")
		n.install()
		n.wantEntryIn(file)
		n.remove()
		n.want(runtime+": after the uninstall", before)
	}
}

// TestWithoutAModeALinkThatSortsFirstIsRefused: a runtime would never take a list of our own.
func TestWithoutAModeALinkThatSortsFirstIsRefused(t *testing.T) {
	t.Parallel()
	const says = "00-calico.conflist sorts before our own 00-mesh-cni.conflist, so that a runtime never takes ours: choose mode splice"
	n := newLinkedNode(t, "")
	n.rename("10-calico.conflist", "00-calico.conflist")
	refuse := func(when string) {
		t.Helper()
		before := dump(t, n.directory)
		if plan, err := n.reconciler().Install(n.context); !errors.Is(err, reconciler.ErrRefused) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v\n%v", when, err, plan)
		}
		n.want(when, before)
	}
	before := dump(t, n.directory)
	refuse("at first")
	shape{files: []string{"20-next.conflist", calicoList}}.lay(t, n.directory)
	refuse("beside a list that sorts after ours")
	n.unlink("20-next.conflist")
	n.options.Want.Runtime = "containerd://2.1.4"
	n.install()
	n.wantEntryIn("k8s-pod-network/99-mesh-cni.conf")
	n.remove()
	n.options.Want.Mode, n.options.Want.Runtime = reconciler.Splice, ""
	n.install()
	n.options.Want.Mode = ""
	refuse("after mode splice")
	n.wantEntryIn("v1/net")
	n.remove()
	n.want("after the uninstall", before)
}

// TestWithoutAModeAListOfOurOwnIsDoubted checks the notes about programs or runtimes that may not
// respect the list.
func TestWithoutAModeAListOfOurOwnIsDoubted(t *testing.T) {
	t.Parallel()
	for doubt, change := range map[string]func(n *node){
		"":                          func(*node) {},
		"takes its network by name": func(n *node) { n.options.Want.ByName = true },
		"20-x.conflist.cilium_bak shows that Cilium renames": func(n *node) { n.write("20-x.conflist.cilium_bak", calicoList, 0o644) },
	} {
		n := newLinkedNode(t, "")
		change(n)
		plan, err := n.reconciler().Install(n.context)
		if notes := strings.Join(plan.Notes, "\n"); err != nil || plan.Mode != reconciler.Owned || !strings.Contains(notes, doubt) || (notes == "") != (doubt == "") {
			t.Errorf("%v, want a note with %q\n%v", err, doubt, plan)
		}
		n.wantEntryIn("00-mesh-cni.conflist")
	}
}

// TestAListOfOurOwnNamesWhatSortsBeforeIt checks that the error names a file that sorts before our
// list and so is not copied.
func TestAListOfOurOwnNamesWhatSortsBeforeIt(t *testing.T) {
	t.Parallel()
	n := newNode(t, reconciler.Owned)
	n.write("00-a.conflist", calicoList, 0o644)
	const says = "there is only 00-a.conflist, which sorts before it"
	if plan, err := n.reconciler().Install(n.context); !errors.Is(err, reconciler.ErrWaiting) || !strings.Contains(err.Error(), says) {
		t.Errorf("%v, want %q\n%v", err, says, plan)
	}
}

func TestTheClaimNamesLinkAndTarget(t *testing.T) {
	t.Parallel()
	n := newLinkedNode(t, reconciler.Splice)
	before := dump(t, n.directory)
	n.install()
	n.wantEntryIn("v1/net")
	for _, want := range []string{`"name": "v1/net"`, `"link": "10-calico.conflist"`} {
		if claim := n.read(n.claim); !strings.Contains(claim, want) {
			t.Errorf("the claim doesn't say %s:\n%s", want, claim)
		}
	}
	n.lead("10-calico.conflist", "v2/net")
	plan, err := n.reconciler().Install(n.context)
	if err != nil || plan.Change == nil || plan.Change.Cause != reconciler.Preempted || !strings.Contains(plan.Change.By.Evidence, "10-calico.conflist leads") {
		t.Errorf("%v\n%v", err, plan)
	}
	n.wantEntryIn("v2/net")
	if strings.Contains(n.read(n.claim), "v1/net") {
		t.Errorf("the claim after the link led elsewhere:\n%s", n.read(n.claim))
	}
	n.lead("20-calico.conflist", "v2/net")
	n.unlink("10-calico.conflist") // another link to the same
	n.install()
	n.wantEntryIn("v2/net")
	n.rename("20-calico.conflist", "10-calico.conflist")
	n.lead("10-calico.conflist", "v1/net")
	n.remove() // before the reconciler has looked
	n.want("after the uninstall", before)
}

// TestUninstallFindsWhatALinkLeadsToWithoutTheClaim: no other program would remove that entry.
func TestUninstallFindsWhatALinkLeadsToWithoutTheClaim(t *testing.T) {
	t.Parallel()
	n := newLinkedNode(t, reconciler.Splice)
	shape{files: []string{"20-other.conflist", "->v1/net"}}.lay(t, n.directory)
	before := dump(t, n.directory)
	n.install()
	n.unlink("../mesh-cni.claim")
	n.remove()
	n.want("after the uninstall", before)
}

// meddlingClaims changes the directory between the look and the first write, when the claim is
// written.
type meddlingClaims struct {
	reconciler.ClaimFile
	meddle func()
}

func (c *meddlingClaims) Update(change func(*reconciler.Claim)) error {
	if c.meddle != nil {
		c.meddle()
		c.meddle = nil
	}
	return c.ClaimFile.Update(change)
}

// TestALinkChangesBetweenLookAndWrite checks that the new target is looked at, and that the old one
// stays unchanged.
func TestALinkChangesBetweenLookAndWrite(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		meddle func(n *node)
		in     string
	}{
		"it leads elsewhere":         {func(n *node) { n.lead("10-calico.conflist", "v2/net") }, "v2/net"},
		"it becomes a file":          {func(n *node) { n.unlink("10-calico.conflist"); n.write("10-calico.conflist", calicoList, 0o644) }, "10-calico.conflist"},
		"its directory is exchanged": {func(n *node) { n.rename("v1", "v0"); n.rename("v2", "v1") }, "v1/net"},
		"its directory is a link": {func(n *node) {
			n.rename("v1", "v0")
			n.lead("v1", "v2")
		}, "v2/net"},
		"its directory is a file": {func(n *node) {
			n.rename("v1", "v0")
			n.write("v1", "", 0o644)
			n.write("20-next.conflist", calicoList, 0o644)
		}, "20-next.conflist"},
		"its target is written": {func(n *node) { n.write("v1/net", strings.Replace(calicoList, "snat", "dnat", 1), 0o644) }, "v1/net"},
	} {
		n := newLinkedNode(t, reconciler.Splice)
		var undisturbed map[string]string
		v1, err := os.Stat(filepath.Join(n.directory, "v1/net"))
		if err != nil {
			t.Fatal(err)
		}
		n.options.Claims = &meddlingClaims{reconciler.ClaimFile{Path: n.claim, Calls: unsynced{}}, func() {
			test.meddle(n)
			undisturbed = dump(t, n.directory)
		}}
		plan, err := n.reconciler().Install(n.context)
		if err != nil {
			t.Errorf("%s: %v\n%v", name, err, plan)
			continue
		}
		n.wantEntryIn(test.in)
		if now, err := os.Stat(filepath.Join(n.directory, "v1/net")); strings.HasPrefix(name, "it ") && err == nil && !os.SameFile(v1, now) {
			t.Errorf("%s: what the link led to was written", name)
		}
		n.remove()
		n.want(name+", after the uninstall", undisturbed)
	}
}

// TestADirectoryBecomesALinkBeforeTheWrite checks that nothing is written where it leads, outside
// of the directory.
func TestADirectoryBecomesALinkBeforeTheWrite(t *testing.T) {
	t.Parallel()
	n := newLinkedNode(t, reconciler.Splice)
	d, err := n.reconciler().In("v1/net")
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := t.TempDir()
	n.rename("v1", "v0")
	n.lead("v1", elsewhere)
	if _, err := d.Write("net", []byte("ours"), filesystem.Options{}); err == nil {
		t.Error("written")
	}
	if left, err := os.ReadDir(elsewhere); len(left) != 0 || err != nil {
		t.Errorf("elsewhere: %v, %v", left, err)
	}
}

// TestAnAbsoluteLinkIsThatOfTheNode mounts the directory, which has another path on the node.
func TestAnAbsoluteLinkIsThatOfTheNode(t *testing.T) {
	t.Parallel()
	for target, says := range map[string]string{
		"/etc/cni/net.d/v1/net":   "",
		"/opt/x/net":              "outside of the directory, which is /etc/cni/net.d on the node: put the file itself into the directory",
		"/etc/cni/net.d/../x/net": "outside of the directory",
	} {
		for _, mode := range []reconciler.Mode{reconciler.Splice, reconciler.Owned, reconciler.DropIn, ""} {
			n := newLinkedNode(t, mode)
			n.options.NodeDirectory = "/etc/cni/net.d"
			n.lead("10-calico.conflist", target)
			before := dump(t, n.directory)
			plan, err := n.reconciler().Install(n.context)
			if says == "" && err != nil || says != "" && (!errors.Is(err, reconciler.ErrRefused) || !strings.Contains(err.Error(), says)) {
				t.Errorf("%q, %s: %v, want %q\n%v", mode, target, err, says, plan)
			}
			if says != "" {
				n.want("after a refusal", before)
			}
			n.remove()
			n.want("after the uninstall", before)
		}
	}
}

// TestALinkToASingleIsNotSpliced: the list that would replace it has another name.
func TestALinkToASingleIsNotSpliced(t *testing.T) {
	t.Parallel()
	n := newNode(t, reconciler.Splice)
	shape{files: []string{"10-net.conf", "->real", "real", bridgeSingle}}.lay(t, n.directory)
	if plan, err := n.reconciler().Install(n.context); !errors.Is(err, reconciler.ErrRefused) || !strings.Contains(err.Error(), "choose mode owned") {
		t.Errorf("%v\n%v", err, plan)
	}
	n.options.Want.Mode = ""
	n.install()
	n.wantEntryIn("00-mesh-cni.conflist")
}

// TestARuntimeIsToldOfWhatALinkLeadsTo: containerd watches the directory of configurations, and not
// those below it.
func TestARuntimeIsToldOfWhatALinkLeadsTo(t *testing.T) {
	t.Parallel()
	n := newLinkedNode(t, reconciler.Splice)
	for _, do := range []func(*reconciler.Reconciler) (reconciler.Plan, error){
		func(r *reconciler.Reconciler) (reconciler.Plan, error) { return r.Install(n.context) },
		func(r *reconciler.Reconciler) (reconciler.Plan, error) { return r.Remove(n.context) },
	} {
		plan, err := do(n.reconciler())
		if err != nil || !plan.EndsInNudge() {
			t.Errorf("%v\n%v", err, plan)
		}
	}
}

// TestSeesWhatALinkLeadsTo has the target in a directory of its own, through a link that no runtime
// loads. The plan names the directories whose changes matter.
func TestSeesWhatALinkLeadsTo(t *testing.T) {
	t.Parallel()
	n := newNode(t, reconciler.Splice)
	shape{files: []string{
		"10-calico.conflist", "->current/net", "current", "->v1", "v1/", "", "v1/net", calicoList, "v2/", "", "v2/net", calicoList,
	}}.lay(t, n.directory)
	before := dump(t, n.directory)
	if plan := n.ensure(); plan.File != "v1/net" || plan.Primary != "10-calico.conflist" || !slices.Contains(plan.Directories(), "v1") {
		t.Errorf("installed: %v", plan)
	}
	n.write("v1/net", calicoList, 0o644)
	if c := n.ensure().Change; c.File != "v1/net" || c.By.Name != "calico" || c.Cause != reconciler.Overwritten {
		t.Errorf("restored: %v", c)
	}
	n.lead("current", "v2")
	n.install()
	n.wantEntryIn("v2/net")
	n.rename("v2", "away")
	if plan := n.waits(); !slices.Contains(plan.Through, "v2") {
		t.Errorf("through %v", plan.Through)
	}
	n.rename("away", "v2")
	n.install()
	n.unlink("v2/net")
	n.waits()
	n.write("v2/net", calicoList, 0o644)
	n.install()
	n.lead("current", "v1")
	n.install()
	n.remove()
	n.want("after the uninstall", before)
}

// TestCopiesWhatALinkLeadsTo checks that our own list follows the target, which another agent
// writes.
func TestCopiesWhatALinkLeadsTo(t *testing.T) {
	t.Parallel()
	n := newLinkedNode(t, reconciler.Owned)
	before := dump(t, n.directory)
	n.ensure()
	n.write("v1/net", strings.Replace(calicoList, `"snat": true`, `"snat": false`, 1), 0o644)
	if c := n.ensure().Change; c.Cause != reconciler.Propagated {
		t.Errorf("change: %v", c)
	}
	n.write("v1/net", calicoList, 0o644)
	n.ensure()
	n.remove()
	n.want("after the uninstall", before)
}

// TestKilledBehindALink checks that a killed process's temporary file beside the target is removed.
func TestKilledBehindALink(t *testing.T) {
	t.Parallel()
	n := newLinkedNode(t, reconciler.Splice)
	n.options.Now = nil
	before := dump(t, n.directory)
	n.install()
	n.write("v1/net.tmp.0123456789abcdef", "half", 0o600)
	n.remove()
	n.want("after the uninstall", before)
}
