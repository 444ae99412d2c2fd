// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestAContestedNode: another program removes the entry again and again, no faster than it is
// restored. The node is ready, and condition and metric show the fight.
func TestAContestedNode(t *testing.T) {
	t.Parallel()
	n := newReadyNode(t)
	n.env["MONITORING_PORT"] = "15014"
	p := n.startReady()
	for range 6 {
		n.write(n.netDir, "10-calico.conflist", calico, 0o644)
		n.until("the entry is back", n.netDir, func() bool { return n.hasEntry("10-calico.conflist") })
	}
	p.waitLine("level=WARN", "another program keeps changing what this one installs", "part=config")
	p.wantMetrics(`meshcni_part_contested{part="config"} 1`, `meshcni_part_contested{part="kubeconfig"} 0`)
	if _, body := get(t, "http://"+p.address(n.env["HEALTH_ADDRESS"])+"/readyz?verbose"); !strings.Contains(body, `"contested": "another program`) {
		t.Errorf("no condition in %s", body)
	}
	p.waitReady()
}

// TestNothingIsSaidToBeWritten: each attempt on a full or read-only directory fails, and the log
// reports only that.
func TestNothingIsSaidToBeWritten(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		hinder func(t *testing.T, n *testNode)
		says   string
	}{
		"read-only": {func(t *testing.T, n *testNode) {
			t.Helper()
			mount(t, n.netDir, n.netDir, "", syscall.MS_BIND, "")
			mount(t, n.netDir, n.netDir, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, "")
		}, "read-only file system"},
		"full": {func(t *testing.T, n *testNode) {
			t.Helper()
			mount(t, "tmpfs", n.netDir, "tmpfs", 0, "size=16k")
			n.write(n.netDir, "10-calico.conflist", calico, 0o644)
			fill(t, filepath.Join(n.netDir, "fill"))
		}, "no space left on device"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newReadyNode(t)
			test.hinder(t, n)
			p := n.start()
			p.waitLine("part=config", "failed; trying again until it works", test.says)
			p.waitAnswer(http.StatusServiceUnavailable, test.says)
			p.waitLog("a second try", func() bool { return strings.Count(p.log.String(), "outcome=failed") > 1 })
			for _, untrue := range []string{"wrote a CNI configuration", "the plugin is in the CNI configuration", "put back"} {
				if strings.Contains(p.log.String(), untrue) {
					t.Errorf("the log says %q:\n%s", untrue, p.log)
				}
			}
		})
	}
}

// fill uses all space of a file system.
func fill(t *testing.T, path string) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = file.Write(make([]byte, 512))
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}
