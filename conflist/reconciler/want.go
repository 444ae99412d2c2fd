// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/conflist"
)

// Want is what a directory of CNI configurations is to have.
type Want struct {
	// Plugin is the plugin's entry. Its body is used in every mode; [Standalone] adds to it.
	Plugin conflist.Plugin
	// Mode is the way to install. Empty is [Splice], or, if the primary configuration is a symbolic
	// link, [DropIn] or [Owned].
	Mode Mode
	// Primary names the file in the directory whose network to chain to. It may have the name
	// before or after a single configuration became a list (10-a.conf, 10-a.conflist). Empty: the
	// first file that a runtime would load.
	Primary string
	// ByName means that the runtime selects its network by the name of Primary's network (CRI-O's
	// cni_default_network), so that files that sort earlier do not matter.
	ByName bool
	// File is the name of our own file in the modes Owned, DropIn and Standalone. Empty:
	// 00-TYPE.conflist, 99-TYPE.conf in the network's directory, and YYY-TYPE.conf. It must be
	// empty with Splice and Auto.
	File string
	// FileMode is the permission bits of that file. Zero means 0600.
	FileMode fs.FileMode
	// Runtime is the container runtime's name and version as in a Kubernetes node's
	// status.nodeInfo.containerRuntimeVersion, such as "containerd://2.1.4". Empty: not known.
	Runtime string
}

// ErrInvalid is in the error for invalid options.
var ErrInvalid = errors.New("invalid options")

// Validate refuses invalid options, with [ErrInvalid], as [New] does.
func (w Want) Validate() error {
	_, err := conflist.Insert([]byte(`{"name":"n","plugins":[]}`), w.Plugin)
	problems := []error{err}
	if w.Plugin.Type != path.Base(w.Plugin.Type) || strings.ContainsAny(w.Plugin.Type, "/\\\x00") {
		problems = append(problems, fmt.Errorf("the type %q is not a file name", w.Plugin.Type))
	}
	_, err = ParseMode(string(w.Mode))
	problems = append(problems, err)
	if w.Primary != "" && !isBare(w.Primary, listExtension, ".conf", ".json") {
		problems = append(problems, fmt.Errorf("the primary %q: write a bare file name that ends in .conflist, .conf or .json", w.Primary))
	}
	if err := errors.Join(append(problems, w.checkFile())...); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// checkFile refuses a name for our own file that a runtime would not read in this mode.
func (w Want) checkFile() error {
	if w.File == "" {
		return nil
	}
	var extensions []string
	switch w.Mode.orSplice() {
	case Owned:
		extensions = []string{listExtension}
	case DropIn:
		extensions = []string{".conf"}
	case Standalone:
		extensions = []string{".conf", ".json"}
	case Splice, Auto:
		return fmt.Errorf("the file %q is not used in mode %s: leave it out, or choose another mode", w.File, w.Mode.orSplice())
	}
	if !isBare(w.File, extensions...) {
		return fmt.Errorf("the file %q: in mode %s it is a bare file name that ends in %s", w.File, w.Mode, strings.Join(extensions, " or "))
	}
	return nil
}

const listExtension = ".conflist"

// isBare reports whether a name has no directory and has one of the extensions.
func isBare(name string, extensions ...string) bool {
	return name == path.Base(name) && !strings.ContainsAny(name, "\\\x00") && slices.Contains(extensions, path.Ext(name)) &&
		strings.Trim(strings.TrimSuffix(name, path.Ext(name)), ".") != ""
}

// ownFile returns the name of our own file in a mode.
func (w Want) ownFile(mode Mode) string {
	if w.File != "" && mode == w.Mode {
		return w.File
	}
	switch mode {
	case Owned:
		return "00-" + w.Plugin.Type + listExtension
	case DropIn:
		return "99-" + w.Plugin.Type + ".conf"
	case Standalone, Splice, Auto:
	}
	return "YYY-" + w.Plugin.Type + ".conf"
}

// perm returns the permission bits of our own files.
func (w Want) perm() fs.FileMode { return cmp.Or(w.FileMode, 0o600).Perm() }

// alone returns the plugin's configuration as a file of its own. If the runtime takes network and
// version from the file (standalone), the type replaces a missing name, and 1.0.0 a missing
// version.
func (w Want) alone(standalone bool) ([]byte, error) {
	body := bytes.TrimSpace(w.Plugin.Body)
	if standalone {
		var has map[string]json.RawMessage
		if err := json.Unmarshal(body, &has); err != nil {
			return nil, fmt.Errorf("%w: %w", conflist.ErrPlugin, err)
		}
		name, err := json.Marshal(w.Plugin.Type)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", conflist.ErrPlugin, err)
		}
		for _, key := range []struct{ name, value string }{{"name", string(name)}, {"cniVersion", `"1.0.0"`}} {
			if _, ok := has[key.name]; !ok {
				body = slices.Concat([]byte(`{"`+key.name+`":`+key.value+`,`), body[1:])
			}
		}
	}
	var out bytes.Buffer
	if err := json.Indent(&out, body, "", "  "); err != nil {
		return nil, fmt.Errorf("%w: %w", conflist.ErrPlugin, err)
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// Mode is how a container runtime is made to call a plugin.
type Mode string

// The modes. The empty mode is Splice, unless the primary configuration is a symbolic link. Then it
// is DropIn if the runtime is known to read such files, else Owned, and a link that sorts before a
// list of our own is refused.
const (
	// Splice puts the plugin's entry into the list that the runtime uses, whichever program owns
	// it. It works with every runtime. A program that rewrites that file removes the entry, until
	// it is restored. If the list is a symbolic link to a file in the directory or below it, that
	// file is replaced, and the link stays.
	Splice Mode = "splice"
	// Owned keeps a list of our own that sorts first: a copy of the list that the runtime would
	// use, with our entry. The original stays unchanged, and its changes are copied. Our file
	// exists from the first moment after a reboot; an agent that removes other programs' files
	// (Cilium with cni.exclusive) removes it too. Entries that other installers put into our list
	// are kept. When our list is removed, they move to the list that a runtime takes next.
	Owned Mode = "owned"
	// DropIn keeps a file in the directory named after the network, beside the list. No other
	// program's file is touched. It requires a runtime with libcni 1.3; older ones ignore the file,
	// and their pods bypass the mesh.
	DropIn Mode = "dropin"
	// Standalone keeps a single configuration with the plugin alone, for a meta plugin (Multus)
	// that calls it in addition to the network's own. No other file is needed or touched.
	Standalone Mode = "standalone"
	// Auto is DropIn if the runtime is known to read it, else Owned if nothing opposes it, else
	// Splice.
	Auto Mode = "auto"
)

// ParseMode parses a mode; the empty text is the empty mode. The error names the modes.
func ParseMode(text string) (Mode, error) {
	switch m := Mode(text); m {
	case "", Splice, Owned, DropIn, Standalone, Auto:
		return m, nil
	}
	return "", fmt.Errorf("%q is not a mode: write splice, owned, dropin, standalone or auto", text)
}

// orSplice returns Splice for the empty mode.
func (m Mode) orSplice() Mode { return cmp.Or(m, Splice) }
