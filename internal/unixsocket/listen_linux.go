// SPDX-License-Identifier: Apache-2.0

package unixsocket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/internal/filesystem"
)

// maxSocketPath is how many bytes the kernel has place for (unix(7)), without the final 0.
const maxSocketPath = 107

// Listen makes a unix socket and listens there, on network "unix" (a stream) or "unixpacket"
// (messages). Only its owner may connect (mode 0600), from the first instant.
//
// The directory must exist, belong to root or to this process's user, and be writable by no other
// user. A socket that is there already is replaced, with no instant in which there is none: an
// earlier process left it, or still listens there and is being replaced. Anything else of that name
// stays, and is an error; a symbolic link is never followed. Closing the listener leaves the file,
// which may be a later process's by then.
func Listen(ctx context.Context, network, path string) (net.Listener, error) {
	listener, err := listenOn(ctx, network, path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return listener, nil
}

func listenOn(ctx context.Context, network, path string) (net.Listener, error) {
	directory := filepath.Dir(path)
	if err := checkDirectory(directory); err != nil {
		return nil, err
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("there is something other than a socket (%s): remove it", info.Mode())
	}
	// The name is as long as the final one, and no program can guess it to be there first.
	name := filepath.Join(directory, fmt.Sprintf(".%09d", rand.N(1_000_000_000)))
	if len(name) > maxSocketPath {
		return nil, fmt.Errorf("its path has %d bytes, and may have %d: use a shorter directory", len(name), maxSocketPath)
	}
	config := net.ListenConfig{Control: beforeBind}
	listener, err := config.Listen(ctx, network, name)
	if err != nil {
		return nil, err
	}
	if socket, ok := listener.(*net.UnixListener); ok {
		socket.SetUnlinkOnClose(false)
	}
	if err := os.Rename(name, path); err != nil {
		return nil, errors.Join(err, listener.Close(), os.Remove(name))
	}
	return listener, nil
}

// beforeBind gives the socket the mode that its file will be made with; the umask can only take
// from it.
func beforeBind(_, _ string, raw syscall.RawConn) error {
	var failure error
	if err := raw.Control(func(fd uintptr) { failure = unix.Fchmod(int(fd), 0o600) }); err != nil {
		return err
	}
	return failure
}

// checkDirectory refuses a directory in which another user could replace our socket.
func checkDirectory(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", path)
	}
	return filesystem.CheckTrusted(path, info)
}
