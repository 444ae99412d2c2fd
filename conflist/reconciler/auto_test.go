// SPDX-License-Identifier: Apache-2.0

package reconciler_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/conflist/reconciler"
)

func snapshot(pairs ...string) reconciler.Snapshot {
	s := reconciler.Snapshot{}
	for i := 0; i+1 < len(pairs); i += 2 {
		s[pairs[i]] = reconciler.File{Mode: 0o644, Data: []byte(pairs[i+1])}
	}
	return s
}

func TestAuto(t *testing.T) {
	t.Parallel()
	const newRuntime, oldRuntime = "containerd://2.1.0", "containerd://2.0.7"
	chosen := func(mode reconciler.Mode, file string) reconciler.Claim {
		return reconciler.Claim{}.Recorded(file, mode)
	}
	for name, test := range map[string]struct {
		dir     reconciler.Snapshot
		claim   reconciler.Claim
		runtime string
		byName  bool
		mode    reconciler.Mode
		why     string
	}{
		"drop-in":                 {snapshot("10-a.conflist", calicoList), reconciler.Claim{}, newRuntime, false, reconciler.DropIn, "containerd://2.1.0 reads"},
		"CRI-O":                   {snapshot("10-a.conflist", calicoList), reconciler.Claim{}, "cri-o://1.34.1", false, reconciler.DropIn, "cri-o://1.34.1 reads"},
		"CRI-O that may or not":   {snapshot("10-a.conflist", calicoList), reconciler.Claim{}, "cri-o://1.33.0", false, reconciler.Owned, "isn't known to read"},
		"old runtime":             {snapshot("10-a.conflist", calicoList), reconciler.Claim{}, oldRuntime, false, reconciler.Owned, oldRuntime + " doesn't read it"},
		"unknown runtime":         {snapshot("10-a.conflist", calicoList), reconciler.Claim{}, "docker://24.0", false, reconciler.Owned, "isn't known to read"},
		"single":                  {snapshot("10-a.conf", bridgeSingle), reconciler.Claim{}, newRuntime, false, reconciler.Owned, "single configuration"},
		"only inlined":            {snapshot("10-a.conflist", `{"name":"n","loadOnlyInlinedPlugins":true,"plugins":[{"type":"a"}]}`), reconciler.Claim{}, newRuntime, false, reconciler.Owned, "loadOnlyInlinedPlugins"},
		"somebody sorts first":    {snapshot("00-a.conflist", calicoList), reconciler.Claim{}, oldRuntime, false, reconciler.Splice, "sorts before our own"},
		"Cilium renames":          {snapshot("05-a.conflist", calicoList, "10-b.conflist.cilium_bak", calicoList), reconciler.Claim{}, oldRuntime, false, reconciler.Splice, "Cilium renames"},
		"network by name":         {snapshot("10-a.conflist", calicoList), reconciler.Claim{}, oldRuntime, true, reconciler.Splice, "by name"},
		"it stays":                {snapshot("10-a.conflist", calicoList), chosen("", "10-a.conflist"), newRuntime, false, reconciler.Splice, "chosen before"},
		"it stays, owned":         {snapshot("10-a.conflist", calicoList), chosen(reconciler.Owned, "00-mesh-cni.conflist"), newRuntime, false, reconciler.Owned, "chosen before"},
		"it stays while it can":   {snapshot("10-a.conflist", calicoList, "00-mesh-cni.conflist.cilium_bak", calicoList), chosen(reconciler.Owned, "00-mesh-cni.conflist"), oldRuntime, false, reconciler.Splice, "Cilium renames"},
		"standalone isn't auto's": {snapshot("10-a.conflist", calicoList), chosen(reconciler.Standalone, "YYY-mesh-cni.conf"), newRuntime, false, reconciler.DropIn, "reads"},
	} {
		want := reconciler.Want{Plugin: mesh("1"), Mode: reconciler.Auto, Runtime: test.runtime, ByName: test.byName, Primary: ""}
		plan := reconciler.Decide(test.dir, test.claim, want, time.Unix(1, 0))
		if plan.Mode != test.mode || !strings.Contains(plan.Reason, test.why) || plan.Err != nil {
			t.Errorf("%s: %s, because %s, %v; want %s, because %s", name, plan.Mode, plan.Reason, plan.Err, test.mode, test.why)
		}
	}
}

func TestStatusIsAsked(t *testing.T) {
	t.Parallel()
	list := func(version string) reconciler.Snapshot {
		return snapshot("10-a.conflist", `{"name":"n",`+version+`"plugins":[{"type":"a"}]}`)
	}
	for name, test := range map[string]struct {
		dir     reconciler.Snapshot
		runtime string
		asked   bool
		why     string
	}{
		"1.1.0":          {list(`"cniVersion":"1.1.0",`), "", true, "1.1.0"},
		"cniVersions":    {list(`"cniVersion":"0.4.0","cniVersions":["1.0.0","1.1.0"],`), "containerd://2.0.1", true, "1.1.0"},
		"older runtime":  {list(`"cniVersion":"1.1.0",`), "containerd://1.7.20", false, "containerd 2 does"},
		"1.0.0":          {list(`"cniVersion":"1.0.0",`), "containerd://2.1.0", false, "cniVersion is 1.0.0"},
		"none":           {list(""), "", false, "cniVersion is 0.1.0"},
		"beyond what is": {list(`"cniVersion":"0.4.0","cniVersions":["9.0.0"],`), "", false, "cniVersion is 0.4.0"},
		"lifted, old":    {snapshot("10-a.conf", bridgeSingle), "", false, "cniVersion is 1.0.0"},
	} {
		plan := reconciler.Decide(test.dir, reconciler.Claim{}, reconciler.Want{Plugin: mesh("1"), Runtime: test.runtime}, time.Unix(1, 0))
		if plan.Status.Asked != test.asked || !strings.Contains(plan.Status.Why, test.why) {
			t.Errorf("%s: %v; want %v, because %s", name, plan.Status, test.asked, test.why)
		}
	}
}

func TestCulprits(t *testing.T) {
	t.Parallel()
	installed := func(mode reconciler.Mode, file string, dir reconciler.Snapshot) reconciler.Claim {
		plan := reconciler.Decide(dir, reconciler.Claim{}, reconciler.Want{Plugin: mesh("1"), Mode: mode}, time.Unix(1, 0))
		claim := reconciler.Claim{}.After(plan)
		if !slices.Equal(claim.Files(), []string{file}) {
			t.Fatalf("not in %s: %v", file, plan)
		}
		return claim
	}
	calico := snapshot("10-calico.conflist", calicoList)
	splice, owned := installed(reconciler.Splice, "10-calico.conflist", calico), installed(reconciler.Owned, "00-mesh-cni.conflist", calico)
	lifted := installed(reconciler.Splice, "10-b.conflist", snapshot("10-b.conf", bridgeSingle))
	other := strings.Replace(calicoList, `"type": "bandwidth"`, oneOfOurs[1:len(oneOfOurs)-1]+`}, {"type": "bandwidth"`, 1)
	for name, test := range map[string]struct {
		mode  reconciler.Mode
		dir   reconciler.Snapshot
		claim reconciler.Claim
		want  reconciler.Cause
		by    string
	}{
		"nobody yet":          {reconciler.Splice, calico, reconciler.Claim{}, reconciler.Fresh, ""},
		"overwritten":         {reconciler.Splice, calico, splice, reconciler.Overwritten, "calico"},
		"another installer":   {reconciler.Splice, snapshot("10-calico.conflist", other), splice, reconciler.Tampered, "unknown"},
		"put first":           {reconciler.Splice, snapshot("10-calico.conflist", strings.Replace(calicoList, "[", "["+string(mesh("1").Body)+",", 1)), splice, reconciler.Tampered, "unknown"},
		"preempted":           {reconciler.Splice, snapshot("05-x.conflist", strings.ReplaceAll(calicoList, "calico", "x"), "10-calico.conflist", calicoList), splice, reconciler.Preempted, "x"},
		"Cilium is installed": {reconciler.Splice, snapshot("05-cilium.conflist", strings.ReplaceAll(calicoList, "calico", "cilium-cni"), "10-calico.conflist.cilium_bak", calicoList), splice, reconciler.RenamedAway, "cilium"},
		"gone":                {reconciler.Splice, snapshot("20-b.conflist", calicoList), splice, reconciler.Removed, "unknown"},
		"single is back":      {reconciler.Splice, snapshot("10-b.conf", bridgeSingle, "10-b.conflist", calicoList), lifted, reconciler.Preempted, "bridge"},
		"owned, gone":         {reconciler.Owned, calico, owned, reconciler.Removed, "unknown"},
		"owned, renamed":      {reconciler.Owned, snapshot("10-calico.conflist", calicoList, "00-mesh-cni.conflist.cilium_bak", other), owned, reconciler.RenamedAway, "cilium"},
		"another mode":        {reconciler.Owned, calico, splice, reconciler.Updated, ""},
	} {
		plan := reconciler.Decide(test.dir, test.claim, reconciler.Want{Plugin: mesh("1"), Mode: test.mode}, time.Unix(1, 0))
		if plan.Err != nil || plan.Change == nil || plan.Change.Cause != test.want || plan.Change.By.Name != test.by || plan.Change.Hostile() != (test.by != "") {
			t.Errorf("%s: %v; want %s by %q\n%v", name, plan.Change, test.want, test.by, plan)
		} else if before := "before that of calico, which makes the interface"; strings.Contains(plan.Change.By.Evidence, before) != (name == "put first") {
			t.Errorf("%s: %v", name, plan.Change)
		}
	}
}

func TestOptionsThatAreRefused(t *testing.T) {
	t.Parallel()
	claims := reconciler.ClaimFile{Path: "/claim"}
	for says, o := range map[string]reconciler.Options{
		"invalid plugin entry":       {Directory: "/d", Claims: claims},
		"is not a mode":              {Directory: "/d", Claims: claims, Want: reconciler.Want{Plugin: mesh("1"), Mode: "both"}},
		"the primary \"../a.conf\"":  {Directory: "/d", Claims: claims, Want: reconciler.Want{Plugin: mesh("1"), Primary: "../a.conf"}},
		"the primary \".conf\"":      {Directory: "/d", Claims: claims, Want: reconciler.Want{Plugin: mesh("1"), Primary: ".conf"}},
		"is not used in mode":        {Directory: "/d", Claims: claims, Want: reconciler.Want{Plugin: mesh("1"), File: "a.conflist"}},
		"ends in .conflist":          {Directory: "/d", Claims: claims, Want: reconciler.Want{Plugin: mesh("1"), Mode: reconciler.Owned, File: "a.conf"}},
		"ends in .conf":              {Directory: "/d", Claims: claims, Want: reconciler.Want{Plugin: mesh("1"), Mode: reconciler.DropIn, File: "../a.conf"}},
		"absolute path":              {Directory: "d", Claims: claims, Want: reconciler.Want{Plugin: mesh("1")}},
		"no directory for the claim": {Directory: "/d", Want: reconciler.Want{Plugin: mesh("1")}},
	} {
		if _, err := reconciler.New(o); !errors.Is(err, reconciler.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want one that says %q", err, says)
		}
	}
}
