// SPDX-License-Identifier: Apache-2.0

package filesystem

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// ErrOutside is in the error of [Follow] for a symbolic link that leads out of the directory.
var ErrOutside = errors.New("outside of the directory")

// ErrNowhere is in the error of [Follow] for a link to a missing target, or back to itself.
var ErrNowhere = errors.New("it leads to nothing")

// mostLinks is how many symbolic links Linux follows in one path.
const mostLinks = 40

// Route is where a path leads. Its paths are relative, with slashes, and without "..".
type Route struct {
	// Target is the final target: not a link, and not below a linked directory. It is "." for the
	// directory itself, and empty after an error.
	Target string
	// Through are the links on the way, in order, followed by the target or the missing path: if
	// one of them changes, the path may lead elsewhere.
	Through []string
}

// Follow returns where a path below a directory leads for a program that knows the directory as
// onNode, an absolute path with slashes: an absolute target of a link below onNode is resolved in
// the directory, wherever it is mounted here. Nothing outside of the directory is read. The error
// is [ErrOutside], [ErrNowhere], or that of the system.
func Follow(root *os.Root, name, onNode string) (Route, error) {
	var r Route
	at, rest := []string(nil), elements(name)
	for links := 0; len(rest) > 0; {
		next := rest[0]
		rest = rest[1:]
		if next == ".." {
			if len(at) == 0 {
				return r, fmt.Errorf("%s leads %w, by \"..\"", name, ErrOutside)
			}
			at = at[:len(at)-1]
			continue
		}
		here := path.Join(path.Join(at...), next)
		target, err := readLink(root, here, len(rest) > 0)
		if errors.Is(err, fs.ErrNotExist) {
			r.Through = append(r.Through, here)
			return r, fmt.Errorf("%w: %s is missing", ErrNowhere, here)
		}
		if err != nil {
			return r, err
		}
		if target == "" {
			at = append(at, next)
			continue
		}
		r.Through = append(r.Through, here)
		if links++; links > mostLinks {
			return r, fmt.Errorf("%w: %s leads in a circle, or by more than %d links", ErrNowhere, here, mostLinks)
		}
		if !path.IsAbs(target) {
			rest = append(elements(target), rest...)
			continue
		}
		below, inside := cutElements(elements(target), elements(onNode))
		if !inside || !path.IsAbs(onNode) {
			return r, fmt.Errorf("%s leads to %s, %w, which is %s on the node", here, target, ErrOutside, onNode)
		}
		at, rest = nil, append(slices.Clone(below), rest...)
	}
	r.Target = path.Join(append([]string{"."}, at...)...)
	r.Through = append(r.Through, r.Target)
	return r, nil
}

// Follow calls [Follow] in the directory.
func (d Directory) Follow(name, onNode string) (Route, error) {
	root, err := d.open()
	if err != nil {
		return Route{}, err
	}
	defer root.Close() //nolint:errcheck // a handle, nothing is written through it
	return Follow(root, name, onNode)
}

// readLink returns where a link leads, with slashes; empty if the name is not a link. With above
// the name must be a directory or a link; anything else counts as missing.
func readLink(root *os.Root, name string, above bool) (string, error) {
	info, err := root.Lstat(name)
	if err != nil {
		return "", err
	}
	if info.Mode()&fs.ModeSymlink == 0 {
		if above && !info.IsDir() {
			err = fmt.Errorf("%s is not a directory: %w", name, fs.ErrNotExist)
		}
		return "", err
	}
	target, err := root.Readlink(name)
	return filepath.ToSlash(target), err
}

func elements(name string) []string {
	return slices.DeleteFunc(strings.Split(name, "/"), func(e string) bool { return e == "" || e == "." })
}

func cutElements(of, prefix []string) (rest []string, found bool) {
	if len(of) < len(prefix) || !slices.Equal(of[:len(prefix)], prefix) {
		return nil, false
	}
	return of[len(prefix):], true
}
