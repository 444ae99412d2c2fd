// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestReadinessDoesNotFlap has the network's plugin replace its configuration again and again, each
// time without our entry. The entry is back each time, and the daemon is ready throughout
// (docs/ambient-complaints.md, E22).
func TestReadinessDoesNotFlap(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	p := n.startReady()
	for range 5 {
		n.write(n.runDirParent(), "new", calico, 0o644)
		mustRename(t, filepath.Join(n.runDirParent(), "new"), filepath.Join(n.netDir, "10-calico.conflist"))
		n.until("the entry is back", n.netDir, func() bool { return n.hasEntry("10-calico.conflist") })
	}
	p.wantSteady()
}

// TestReadinessDoesNotFlapWhileAFileIsWritten has the network's plugin truncate its configuration,
// and write it in pieces: the daemon looks at each, and is ready throughout (E22).
func TestReadinessDoesNotFlapWhileAFileIsWritten(t *testing.T) {
	t.Parallel()
	for name, primary := range map[string]string{"first": "", "named": "10-calico.conflist"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.env["CNI_CONF_NAME"] = primary
			n.write(n.netDir, "10-calico.conflist", calico, 0o644)
			p := n.startReady()
			for _, written := range []int{0, len(calico) / 2} {
				looks := p.looks("waiting")
				n.write(n.netDir, "10-calico.conflist", calico[:written], 0o644)
				later := time.Now().Add(time.Minute) // so that the file does not count as broken on a busy machine
				if err := os.Chtimes(filepath.Join(n.netDir, "10-calico.conflist"), later, later); err != nil {
					t.Fatal(err)
				}
				p.waitLog("it has looked", func() bool { return p.looks("waiting") > looks })
			}
			n.write(n.netDir, "10-calico.conflist", calico, 0o644)
			n.until("the entry is back", n.netDir, func() bool { return n.hasEntry("10-calico.conflist") })
			p.wantSteady()
		})
	}
}

// looks counts the looks at the configuration with an outcome.
func (p *process) looks(outcome string) (count int) {
	for line := range strings.Lines(p.log.String()) {
		if strings.Contains(line, "msg=looked part=config outcome="+outcome) {
			count++
		}
	}
	return count
}

// wantSteady checks that the daemon has been ready since it first was.
func (p *process) wantSteady() {
	p.node.t.Helper()
	p.waitReady()
	if text := p.log.String(); strings.Count(text, "msg=ready") != 1 || strings.Contains(text[strings.Index(text, "msg=ready"):], "not ready") {
		p.node.t.Errorf("readiness flapped:\n%s", text)
	}
}
