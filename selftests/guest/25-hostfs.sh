#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml
# covers: userspace-tools/guest/src userspace-tools/agent qemu-images/config/uml.config
# A guest of User Mode Linux tries to reach the host's files: hostfs follows `..`, so only the confinement of
# the kernel's process protects them.
. "$(dirname "$0")/lib.sh"

reasons="denied|not permitted|not implemented|No such file|Read-only"
mkdir -p /own /out
check "hostfs shows the guest's own folder" mount -t hostfs none /own
check "the guest's own folder has its messages" [ -s /own/messages ]
check "the guest can write in its own folder" sh -c 'echo x >/own/scratch && rm /own/scratch'

# The host refuses either the mount or the later access.
mount -t hostfs -o ../../../../../../../../../.. none /out 2>/dev/null
mounted=$?
if [ $mounted -eq 0 ]; then
	check "the path out of the folder leads to the host" [ -e /out/usr/bin/env ]
fi
refuses "the host's root cannot be listed" "$reasons" ls /out/ /out/proc
refuses "the host's /etc cannot be listed" "$reasons" ls /out/etc
for file in etc/passwd etc/hostname proc/self/environ proc/1/cmdline; do
	refuses "/$file of the host cannot be read" "$reasons" cat /out/$file
done
# Remove any file that gets through.
escaped=/out/tmp/xdc-escaped-$$
refuses "no file can be created in the host's /tmp" "$reasons" sh -c "echo x >$escaped"
refuses "no folder can be created in the host's /tmp" "$reasons" mkdir $escaped.d
refuses "no symbolic link can be created in the host's /tmp" "$reasons" ln -s /etc/passwd $escaped.l
refuses "no device node can be created in the host's /tmp" "$reasons" mknod $escaped.n c 1 3
refuses "no hard link to a file of the host can be created" "$reasons" ln /out/usr/bin/env $escaped.h
refuses "no file can be moved out of the folder" "$reasons" sh -c "echo x >/own/x && mv /own/x $escaped.m"
rm -f $escaped $escaped.l $escaped.n $escaped.h $escaped.m /own/x
rmdir $escaped.d 2>/dev/null
refuses "a file of the host cannot be truncated" "$reasons" sh -c ': >>/out/etc/hostname'
refuses "the mode of a host's folder cannot be changed" "$reasons" chmod 1777 /out/tmp
refuses "the owner of a host's folder cannot be changed" "$reasons" chown 0:0 /out/tmp
refuses "the times of a host's folder cannot be changed" "$reasons" touch -c -d 2020-01-01 /out/tmp
# A program with the caller's rights, for any user of the host.
echo '#!/bin/sh' >/own/program
refuses "a file of the guest's own folder cannot become setuid" "$reasons" chmod 4755 /own/program
rm -f /own/program
[ $mounted -ne 0 ] || umount /out
umount /own
finish
