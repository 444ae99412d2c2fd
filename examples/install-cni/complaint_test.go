// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strings"
	"testing"
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
	p.waitReady()
	if text := p.log.String(); strings.Count(text, "msg=ready") != 1 || strings.Contains(text[strings.Index(text, "msg=ready"):], "not ready") {
		t.Errorf("readiness flapped:\n%s", text)
	}
}
