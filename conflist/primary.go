// SPDX-License-Identifier: Apache-2.0

package conflist

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
)

// Primary returns the name of the file in a CNI configuration directory (commonly /etc/cni/net.d)
// that a container runtime loads: the first valid file, in byte order of the names, of those named
// .conflist, .conf or .json.
//
// This is the rule of CRI-O, which skips files that it cannot load. containerd loads nothing while
// an earlier file is invalid, and takes the same file once that one is corrected or removed. Valid
// is what libcni 1.3 loads: a .conflist must be a list with a name and with a plugin of its own or
// in the drop-in directory named after the network; any other file must be a single configuration.
// The runtime's criteria count, not those of [Insert]: a file that a runtime loads although this
// package finds it ambiguous is the primary, because the runtime would never see an entry in
// another file. CRI-O also skips a file whose plugin's executable is missing; Primary cannot see
// that.
//
// Extensions must match exactly, so temporary files and backups (.conflist.tmp, .conf~,
// .conflist.cilium_bak) are not candidates. Files that vanish meanwhile, directories and other
// files that are not regular are skipped.
//
// The error is [ErrNoPrimary], with the reason of each skipped file, if no file is valid. Any other
// error means that a file could not be judged: it is unreadable, larger than [MaxSize], or a
// symbolic link whose target is missing in this mount namespace. Primary then does not guess.
func Primary(dir fs.FS) (name string, err error) {
	files, err := fs.ReadDir(dir, ".")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("listing the CNI configuration directory: %w", err)
	}
	var skipped []SkippedFile
	for _, f := range files {
		if f.IsDir() || !slices.Contains([]string{".conflist", ".conf", ".json"}, path.Ext(f.Name())) {
			continue
		}
		reason, err := judge(dir, f.Name())
		if err != nil {
			return "", fmt.Errorf("cannot tell whether a runtime loads %s: %w", f.Name(), err)
		}
		if reason == nil {
			return f.Name(), nil
		}
		skipped = append(skipped, SkippedFile{f.Name(), reason})
	}
	return "", &NoPrimaryError{skipped}
}

// judge returns the reason why a runtime does not load a file, or nil if it does.
func judge(dir fs.FS, name string) (reason, err error) {
	doc, reason, err := read(dir, name)
	if reason != nil || err != nil {
		return reason, err
	}
	network, reason := LoadNetwork(doc, path.Ext(name) == ".conflist")
	if reason != nil {
		return reason, nil
	}
	dropins := 0
	if network.DropIns() {
		if dropins, reason, err = countDropins(dir, network.Name); reason != nil || err != nil {
			return reason, err
		}
	}
	if len(network.Types)+dropins == 0 {
		return fmt.Errorf("there is no plugin in the list, and none in a directory %q", network.Name), nil
	}
	return nil, nil
}

// countDropins counts the plugins in a network's directory, which libcni 1.3 appends to the list.
func countDropins(dir fs.FS, network string) (n int, reason, err error) {
	switch info, err := fs.Stat(dir, network); {
	case errors.Is(err, fs.ErrNotExist):
		return 0, nil, nil
	case err != nil:
		return 0, nil, err
	case !info.IsDir():
		return 0, fmt.Errorf("%s has the name of the network's drop-in directory, but is not a directory", network), nil
	}
	files, err := fs.ReadDir(dir, network)
	if err != nil {
		return 0, nil, err
	}
	for _, f := range files {
		if f.IsDir() || path.Ext(f.Name()) != ".conf" {
			continue
		}
		file := path.Join(network, f.Name())
		doc, reason, err := read(dir, file)
		if reason == nil && err == nil {
			_, reason = loadPlugin(doc)
		}
		switch {
		case err != nil:
			return 0, nil, fmt.Errorf("%s: %w", file, err)
		case reason != nil:
			return 0, fmt.Errorf("%s: %w", file, reason), nil
		}
		n++
	}
	return n, nil, nil
}

// read returns a file's content, or the reason why a runtime cannot read it either.
func read(dir fs.FS, name string) (doc []byte, reason, err error) {
	// Opening a pipe would wait for a writer, so the kind of file is checked first.
	switch info, err := fs.Stat(dir, name); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, err, checkNoLink(dir, name)
	case err != nil:
		return nil, nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("is not a regular file but %v", info.Mode().Type()), nil
	}
	f, err := dir.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, err, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer f.Close() //nolint:errcheck // nothing was written
	doc, err = io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err == nil && len(doc) > MaxSize {
		err = fmt.Errorf("larger than %d bytes: this is not a network configuration, move it away", MaxSize)
	}
	return doc, nil, err
}

// checkNoLink refuses a symbolic link whose target is missing: in a container that mounts the
// directory, an absolute link leads nowhere, but the runtime on the host can follow it.
func checkNoLink(dir fs.FS, name string) error {
	info, err := fs.Lstat(dir, name)
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return errors.New("it is a symbolic link whose target is not visible from here: replace the link by the file")
	}
	return nil
}
