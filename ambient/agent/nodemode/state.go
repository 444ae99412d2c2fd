// SPDX-License-Identifier: Apache-2.0

package nodemode

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/filesystem"
)

// ErrState is wrapped by the error about a state file that is damaged, or another owner's.
var ErrState = errors.New("the file of the node's proxies cannot be used")

// state is the content of the state file.
type state struct {
	Version int                `json:"version"`
	Owner   interception.Owner `json:"owner"`
	// Proxies are those that may have interfaces on the host. The first one gets new connections,
	// unless None says that no proxy does.
	Proxies []record `json:"proxies"`
	None    bool     `json:"none,omitempty"` // earlier agents take the first one then
}

// record is what the file says of a proxy.
type record struct {
	UID       string               `json:"uid"`
	Namespace string               `json:"namespace"`
	Name      string               `json:"name"`
	Netns     interception.NetnsID `json:"netns"`
	Proxy     ambient.NodeProxy    `json:"proxy"`
}

// version is the version of the file's format. The agent refuses a file of another version. The
// file ends with the node's boot, and updates before that have to keep the format.
const version = 1

// maxState bounds the file's size, which is less than 1 KiB for each proxy.
const maxState = 64 << 10

// stateFile returns the directory and the name of the state file.
func (o *Options) stateFile() (filesystem.Directory, string) {
	return filesystem.Directory{Path: filepath.Dir(o.State)}, filepath.Base(o.State)
}

// readState returns what the state file says; nothing without one.
func (o *Options) readState() (s state, err error) {
	directory, name := o.stateFile()
	text, err := directory.Read(name, maxState)
	if errors.Is(err, fs.ErrNotExist) {
		return state{}, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err == nil && (s.Version != version || s.Owner != o.Owner) {
		err = fmt.Errorf("it is of version %d and owner %q, want version %d and owner %q", s.Version, s.Owner, version, o.Owner)
	}
	if err != nil {
		return state{}, fmt.Errorf("%s: %w: remove it if no other program needs it: %w", o.State, ErrState, err)
	}
	return s, nil
}

// writeState replaces the state file.
func (o *Options) writeState(proxies []record, none bool) error {
	text, err := json.Marshal(state{version, o.Owner, proxies, none})
	if err == nil {
		directory, name := o.stateFile()
		_, err = directory.Write(name, append(text, '\n'), filesystem.Options{})
	}
	if err != nil {
		return fmt.Errorf("note the node's proxies before the host is changed: %w: see that there is room in the directory", err)
	}
	return nil
}

// removeState removes the state file.
func (o *Options) removeState() error {
	directory, name := o.stateFile()
	if _, err := directory.Remove(name); err != nil {
		return fmt.Errorf("remove the note of the node's proxies: %w", err)
	}
	return nil
}
