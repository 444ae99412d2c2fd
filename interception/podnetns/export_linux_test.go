// SPDX-License-Identifier: Apache-2.0

package podnetns

// Process is an opened process.
type Process struct{ p process }

// OpenProcess opens a process.
func OpenProcess(root string, pid int) (Process, error) {
	p, err := openProcess(root, pid)
	return Process{p}, err
}

// Close closes the process.
func (p Process) Close() { p.p.close() }

// Look does everything that a search does with a process. The steps must either all fail or all
// succeed.
func (p Process) Look() error {
	_, err := p.p.membership()
	if _, also := p.p.netnsID(); (err == nil) != (also == nil) {
		panic("the steps differ")
	}
	if file, also := p.p.open("ns/net"); also == nil {
		_ = file.Close()
	} else if err == nil {
		return also
	}
	return err
}
