// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/meshcni/meshcni/examples/internal/ambientconf"
	"github.com/meshcni/meshcni/interception/journal"
)

// nodeState is the path of the file about the node's proxies, for the capture on the node.
func (o options) nodeState() string { return o.journal + ".node.json" }

// errOtherForm means that the node's pods are captured in the other form.
var errOtherForm = errors.New("the node's pods are captured in the other form of ambient mode")

// checkForm returns an error if the pods of the node are captured in the form that the settings do
// not ask for. Both at once would capture connections twice, and the end of one before the other
// begins would leave connections without the mesh.
func (o options) checkForm() error {
	if o.settings.OnNode() {
		recorded, err := journal.Journal{Directory: o.journal}.Attachments()
		if err != nil {
			return fmt.Errorf("see whether pods are captured in their own namespaces: %w", err)
		}
		if len(recorded) > 0 {
			return otherForm(ambientconf.ModeInPod, ambientconf.ModeNode, fmt.Sprintf("%s has records of %d pods", o.journal, len(recorded)))
		}
		return nil
	}
	if _, err := os.Lstat(o.nodeState()); !errors.Is(err, fs.ErrNotExist) {
		return otherForm(ambientconf.ModeNode, ambientconf.ModeInPod, o.nodeState()+" exists")
	}
	return nil
}

func otherForm(is, want, found string) error {
	return fmt.Errorf("%w: %s, so that they are in mode %q, and the settings ask for %q: set mode %q again, take all pods of the node "+
		"out of the mesh (install-cni ambient withdraw --all), and then set mode %q", errOtherForm, found, is, want, is, want)
}
