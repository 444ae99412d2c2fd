// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/meshcni/meshcni/interception/journal"
)

func (n *node) journal() journal.Journal {
	return journal.Journal{Directory: filepath.Join(n.runDir, "journal")}
}

func (n *node) attachments() []journal.Attachment {
	n.t.Helper()
	all, err := n.journal().Attachments()
	if err != nil {
		n.t.Fatal(err)
	}
	return all
}

var web = journal.Attachment{Network: "k8s-pod-network", ContainerID: "abc", Interface: "eth0"}

func TestWhatIsAppliedIsRecorded(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	n.exec("ADD", n.add()).mustSucceed(t)
	record, err := n.journal().Read(web)
	if err != nil {
		t.Fatal(err)
	}
	if record.Namespace != "shop" || record.Name != "web-0" || record.UID != uid || record.Netns != n.netns.Path() {
		t.Errorf("%+v", record)
	}
	if record.Plan.Owner != pluginName || record.NetnsID.Inode == 0 || record.Planner == "" || record.Time.IsZero() {
		t.Errorf("%+v", record)
	}
	n.exec("DEL", n.add()).mustBeSilent(t)
	if _, err := n.journal().Read(web); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after DEL: %v", err)
	}
}

func (o outcome) mustBeSilent(t *testing.T) {
	t.Helper()
	if o != (outcome{}) {
		t.Errorf("got %+v", o)
	}
}

func TestAPodThatIsLeftAloneHasNoRecord(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t, `"name": "istio-proxy"`, `"name": "proxy"`))
	n.exec("ADD", n.add()).mustSucceed(t)
	if all := n.attachments(); len(all) > 0 {
		t.Errorf("got %v", all)
	}
}

// A pod that is captured starts, also where nothing can be written.
func TestAJournalThatCannotBeWrittenIsAWarning(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	if err := os.WriteFile(n.journal().Directory, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o := n.exec("ADD", n.add())
	o.mustSucceed(t)
	if !strings.Contains(o.stderr, "could not be recorded") || !slices.Contains(n.tables(), pluginName) {
		t.Errorf("tables %v, log:\n%s", n.tables(), o.stderr)
	}
}

func TestGC(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		settings []string
		left     int
	}{
		"named":       {[]string{`{"cni.dev/valid-attachments": [{"containerID": "abc", "ifname": "eth0"}]}`}, 1},
		"not named":   {[]string{`{"cni.dev/valid-attachments": [{"containerID": "abd", "ifname": "eth0"}]}`}, 0},
		"none":        {[]string{`{"cni.dev/valid-attachments": []}`}, 0},
		"no list":     {nil, 1},
		"another net": {[]string{`{"cni.dev/valid-attachments": [], "name": "storage"}`}, 1},
		"null":        {[]string{`{"cni.dev/valid-attachments": null}`}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, pod(t))
			n.exec("ADD", n.add()).mustSucceed(t)
			n.exec("GC", n.add(append(test.settings, `{"cniVersion": "1.1.0"}`)...)).mustBeSilent(t)
			if all := n.attachments(); len(all) != test.left {
				t.Errorf("got %v, want %d", all, test.left)
			}
		})
	}
}

func TestGCFails(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	const version = `{"cniVersion": "1.1.0"}`
	n.exec("GC", n.add(version, `{"cni.dev/valid-attachments": 1}`)).mustFail(t, types.ErrInvalidNetworkConfig)
	n.exec("GC", n.add(version, `{"cni_agent_run_dir": "run"}`)).mustFail(t, types.ErrInvalidNetworkConfig)
	if err := os.WriteFile(n.journal().Directory, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.exec("GC", n.add(version, `{"cni.dev/valid-attachments": []}`)).mustFail(t, types.ErrIOFailure)
}
